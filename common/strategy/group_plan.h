// What a group of ranks takes from the ledger for itself: the world's, and a strategy's for each split.
#pragma once

#include "common/memory/plan.h"

namespace sc {

/// Scratch of a communicator of `ranks` ranks. A group of one sends nothing and has none.
///   of  that number as a formula: "N", of the whole world
void plan_group(const RunShape& shape, WorldSize ranks, MemoryPlan& plan, const std::string& of = "N");

}  // namespace sc
