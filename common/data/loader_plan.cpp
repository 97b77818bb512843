#include "common/data/loader_plan.h"

#include <algorithm>

#include "common/data/sampler.h"

namespace sc {

void plan_loader(const Workload& workload, std::int64_t ranks, DeviceKind device, MemoryPlan& plan) {
  const std::int64_t micro = workload.batch.micro;
  const auto of_rank = [&](std::int64_t all) { return micro_batch_run(all, 0, ranks).size; };
  // Micro-batches of a rank that are there at once: of a step, or of an evaluation if those are more.
  const std::int64_t step = of_rank(workload.batch.global / micro),
                     evaluation = of_rank(ceil_div(workload.data.validation_rows, micro));
  const Elements one(std::max(step, evaluation) * micro * workload.batch.sequence);
  const std::string of = step >= evaluation ? "M B T" : "M_eval B T";
  plan.add(Purpose::workspace, "tokens", "8 " + of, bytes_of(one, DType::i64));
  plan.add(Purpose::workspace, "targets", "8 " + of, bytes_of(one, DType::i64));
  plan.add(Purpose::workspace, "scale", "4", bytes_of(Elements(1), DType::f32));
  if (device == DeviceKind::cpu) return;
  plan.add(Purpose::workspace, "tokens_staging", "8 x 4 " + of, 4 * bytes_of(one, DType::i64), Place::pinned);
}

}  // namespace sc
