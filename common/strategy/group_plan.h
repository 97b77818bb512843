// What a group of ranks takes from the ledger for itself: the world's, and a strategy's for each split.
#pragma once

#include "common/memory/plan.h"

namespace sc {

/// Scratch of a communicator of so many ranks. A group of one sends nothing and has none.
void plan_group(const RunShape& shape, const Formula& ranks, MemoryPlan& plan);

}  // namespace sc
