// A loss or gradient that is not finite: who made it, and where.
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

/// Every rank scans what it holds: its last micro-batch's gradient (state()'s Purpose::workspace), then
/// the summed gradients. Collective. Throws ClaimError with step, unit and the ranks whose last micro-batch
/// shows it before any sum over data ranks: the same text on all ranks. Which of the stages and tensor ranks
/// that compute a micro-batch together made it cannot be told.
[[noreturn]] void throw_nonfinite(Strategy& strategy, double loss, std::int64_t step, const RunShape& shape,
                                  Communicator& comm);

/// What is no number is no result, unless optim.nonfinite=skip says to live with such: then it is a warning
/// on rank 0.
///   Errors  ClaimError: what was said, and the fix.
void stop_or_warn(const RunShape& shape, const std::string& said, const std::string& fix);

/// The first of the newest weights that holds a number that is not finite, "h.0.ln_1.bias of unit 1"; empty:
/// there is none. exact: only what --save writes is looked at, not its rounded copy. Every rank scans what it
/// holds. Collective:
/// the same text on all ranks.
std::string nonfinite_weight(Strategy& strategy, const ParamLayout& layout, Communicator& comm, bool exact);

}  // namespace sc::detail
