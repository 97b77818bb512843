// The buffers of a group of ranks: the world, or one of the groups into which a strategy splits it.
#pragma once

#include "common/memory/plan.h"

namespace sc {

/// Adds the scratch of a communicator with so many ranks. A group of one sends nothing and has none.
void plan_group(const RunShape& shape, const Formula& ranks, MemoryPlan& plan);

}  // namespace sc
