// Finds out which rank made a loss or gradient that is not finite, and where.
#pragma once

#include <cstdint>
#include <string>

#include "common/comm/communicator.h"
#include "common/memory/plan.h"
#include "common/model/param_layout.h"

namespace sc {
class Strategy;
}  // namespace sc

namespace sc::detail {

/// Every rank scans its last micro-batch's gradient (state()'s Purpose::workspace), then its summed
/// gradients. Collective. Throws ClaimError, with the same text on all ranks: step, unit and the ranks whose
/// last micro-batch shows the number before any sum over data ranks. Which of the stages and tensor ranks of
/// one micro-batch made it cannot be told.
[[noreturn]] void throw_nonfinite(Strategy& strategy, double loss, std::int64_t step, const RunShape& shape,
                                  Communicator& comm);

/// Ends the run because of a number that is not finite; with optim.nonfinite=skip only warns, on rank 0.
///   Errors  ClaimError with `said` and the fix.
void stop_or_warn(const RunShape& shape, const std::string& said, const std::string& fix);

/// The first weight that is not finite, as "h.0.ln_1.bias of unit 1"; empty if all are. With `exact` only the
/// weights that --save writes are scanned, not their rounded copy. Every rank scans its own part, and gets
/// the same text. Collective.
std::string nonfinite_weight(Strategy& strategy, const ParamLayout& layout, Communicator& comm, bool exact);

}  // namespace sc::detail
