#include "common/model/context_plan.h"

#include <string>

#include "common/base/check.h"
#include "common/model/part_plan.h"

namespace sc {

RunShape shape_of_part(RunShape shape, const ContextCut& cut) {
  BatchConfig& batch = shape.workload.batch;
  const int chunks = cut.chunks_of_row();
  if (batch.sequence % chunks != 0) {
    throw InputError(ExitCode::usage, "batch.sequence",
                     std::to_string(batch.sequence) + " tokens a row cannot be cut into " +
                         std::to_string(chunks) + " chunks for " + std::to_string(cut.ranks) +
                         " context ranks",
                     "--set batch.sequence=" + std::to_string(batch.sequence / chunks * chunks) +
                         (batch.sequence % cut.ranks == 0 ? ", or --set parts=contiguous" : ""));
  }
  shape.starts.clear();
  for (const int chunk : cut.chunks_of(cut.rank)) shape.starts.push_back(chunk * (batch.sequence / chunks));
  batch.sequence /= cut.ranks;
  return shape;
}

Formula keys_of(const RunShape& shape, std::int64_t heads) {
  return 2 * Formula("B", shape.workload.batch.micro) * Formula("T", shape.workload.batch.sequence) *
         Formula("a", heads * shape.workload.model.head_dim());
}

void plan_hops(const RunShape& shape, const ContextCut& cut, std::int64_t heads, MemoryPlan& plan) {
  if (cut.ranks == 1) return;
  const BatchConfig& batch = shape.workload.batch;
  const DType dtype = shape.workload.precision.dtype;
  const Formula c("c", cut.ranks), tokens = Formula("B", batch.micro) * Formula("T", batch.sequence),
                                   a("a", heads * shape.workload.model.head_dim());
  plan.add({Purpose::workspace, "hop", tokens * a / c, dtype});
  plan.add({Purpose::workspace, "hop_lse", tokens * Formula("H", heads) / c, DType::f32});
  plan.add({Purpose::workspace, "hop_grads", 2 * tokens * a / c, dtype});
  plan.add({Purpose::workspace, "hop_sum", tokens * a / c, DType::f32});
}

}  // namespace sc
