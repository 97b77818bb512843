// AdamW's state of what a rank steps, by formula. No torch.
#pragma once

#include <string>

#include "common/memory/plan.h"
#include "common/model/param_layout.h"

namespace sc {

/// Every unit cut evenly over all ranks.
inline ParamLayout layout_of(const RunShape& shape) {
  return ParamLayout(shape.workload.model, shape.mesh.world());
}

/// Of every matrix, what the tensor rank has.
inline TensorCut cut_of(const RunShape& shape) {
  return {static_cast<int>(shape.at(Axis::tensor)), static_cast<int>(shape.mesh.size(Axis::tensor))};
}

/// An fp32 master (beside 16-bit parameters alone) and two moments, `elements` each.
///   where  "shard", "full" or "stage", the end of the buffers' names
void plan_optimizer_state(const RunShape& shape, const Formula& elements, MemoryPlan& plan,
                          const std::string& where = "shard");

}  // namespace sc
