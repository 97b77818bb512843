// A loss or gradient that is not finite: who made it, and where.
#pragma once

#include <cstdint>

#include "common/comm/communicator.h"

namespace sc::detail {

class AnyStrategy;

/// Every rank scans what it holds: its last micro-batch's gradient (state()'s Purpose::workspace), then
/// the summed gradients. Collective. Throws ClaimError with step, rank (if a last micro-batch shows it) and
/// unit: the same text on all ranks.
[[noreturn]] void throw_nonfinite(AnyStrategy& strategy, double loss, std::int64_t step, Communicator& comm);

}  // namespace sc::detail
