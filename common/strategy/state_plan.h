// AdamW's state for what a rank updates, by formula. No torch.
#pragma once

#include <string>

#include "common/memory/plan.h"
#include "common/model/param_layout.h"

namespace sc {

/// The layout with every unit cut evenly over all ranks.
inline ParamLayout layout_of(const RunShape& shape) {
  return ParamLayout(shape.workload.model, shape.mesh.world());
}

/// The tensor rank's cut of every matrix.
inline TensorCut cut_of(const RunShape& shape) {
  return {static_cast<int>(shape.at(Axis::tensor)), static_cast<int>(shape.mesh.size(Axis::tensor))};
}

/// Adds an fp32 master (with 16-bit parameters only) and two moments of `elements` each. `where` ends the
/// buffers' names: "shard", "full" or "stage".
void plan_optimizer_state(const RunShape& shape, const Formula& elements, MemoryPlan& plan,
                          const std::string& where = "shard");

}  // namespace sc
