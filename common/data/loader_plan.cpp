#include "common/data/loader_plan.h"

#include "common/data/sampler.h"

namespace sc {

void plan_loader(const BatchConfig& batch, std::int64_t evaluated, std::int64_t ranks, DeviceKind device,
                 MemoryPlan& plan) {
  const auto of_rank = [&](std::int64_t all) { return micro_batch_run(all, 0, ranks).size; };
  // A rank holds the micro-batches of a step or of an evaluation at once, so the larger number counts.
  const std::int64_t step = of_rank(batch.global / batch.micro), evaluation = of_rank(evaluated);
  const Formula micro_batches = step >= evaluation ? Formula("M", step) : Formula("M_eval", evaluation),
                tokens = micro_batches * Formula("B", batch.micro) * Formula("T", batch.sequence);
  plan.add({Purpose::workspace, "tokens", tokens, DType::i64});
  plan.add({Purpose::workspace, "targets", tokens, DType::i64});
  plan.add({Purpose::workspace, "scale", {}, DType::f32});
  if (device == DeviceKind::cpu) return;
  plan.add({Purpose::workspace, "tokens_staging", 4 * tokens, DType::i64, Place::pinned});
}

}  // namespace sc
