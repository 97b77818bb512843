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
  batch.sequence /= chunks;
  batch.micro *= cut.chunks_of_rank();
  batch.global *= cut.chunks_of_rank();
  shape.starts.clear();
  for (const int chunk : cut.chunks_of(cut.rank)) shape.starts.push_back(chunk * batch.sequence);
  return shape;
}

Formula keys_of(const RunShape& shape, std::int64_t heads) {
  return 2 * Formula("B", shape.workload.batch.micro) * Formula("T", shape.workload.batch.sequence) *
         Formula("a", heads * shape.workload.model.head_dim());
}

void plan_pairs(const RunShape& shape, const ContextCut& cut, std::int64_t heads, MemoryPlan& plan) {
  const BatchConfig& batch = shape.workload.batch;
  const DType dtype = shape.workload.precision.dtype;
  const Formula c("c", cut.ranks), of_a_pair = cut.chunks_of_rank() == 1 ? c : cut.chunks_of_rank() * c,
                                   tokens = Formula("B", batch.micro) * Formula("T", batch.sequence),
                                   a("a", heads * shape.workload.model.head_dim());
  plan.add({Purpose::workspace, "pair", tokens * a / of_a_pair, dtype});
  plan.add({Purpose::workspace, "pair_lse", tokens * Formula("H", heads) / of_a_pair, DType::f32});
  plan.add({Purpose::workspace, "pair_grads", 2 * tokens * a / of_a_pair, dtype});
  plan.add({Purpose::workspace, "pair_sum", tokens * a / c, DType::f32});
}

}  // namespace sc
