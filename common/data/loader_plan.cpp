#include "common/data/loader_plan.h"

#include <algorithm>

#include "common/data/sampler.h"

namespace sc {
namespace {

// Micro-batches of a rank that are there at once.
std::int64_t buffers(const Workload& workload, std::int64_t ranks) {
  const std::int64_t micro = workload.batch.micro;
  const auto of_rank = [&](std::int64_t all) { return micro_batch_run(all, 0, ranks).size; };
  return std::max(of_rank(workload.batch.global / micro),
                  of_rank(evaluation_micro_batches(workload.data.validation_rows, micro)));
}

}  // namespace

void plan_loader(const Workload& workload, std::int64_t ranks, DeviceKind device, MemoryPlan& plan) {
  const Elements one(buffers(workload, ranks) * workload.batch.micro * workload.batch.sequence);
  plan.add(Purpose::workspace, "tokens", "8 M B T", bytes_of(one, DType::i64));
  plan.add(Purpose::workspace, "targets", "8 M B T", bytes_of(one, DType::i64));
  plan.add(Purpose::workspace, "scale", "4", bytes_of(Elements(1), DType::f32));
  if (device == DeviceKind::cpu) return;
  plan.add(Purpose::workspace, "tokens_staging", "32 M B T", 4 * bytes_of(one, DType::i64), Place::pinned);
}

}  // namespace sc
