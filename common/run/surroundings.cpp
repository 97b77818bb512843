#include "common/run/surroundings.h"

#include "common/data/loader_plan.h"
#include "common/strategy/group_plan.h"

namespace sc::detail {

CommBackend comm_backend(DeviceKind device, bool share_gpu, bool apart) {
  if (device == DeviceKind::cuda) return share_gpu ? CommBackend::staged : CommBackend::nccl;
  return apart ? CommBackend::mpi : CommBackend::local;
}

void plan_surroundings(const RunShape& shape, MemoryPlan& plan) {
  const Formula f32 = size_of(DType::f32), i64 = size_of(DType::i64);
  // The scalars: lr, clip factor, norm, and the number of updates so far.
  plan.add({Purpose::workspace, "step scalars", 3 * f32 + i64});
  // The scaler's state: the scale, and the counts of good steps and overflows.
  if (scales_loss(shape)) plan.add({Purpose::workspace, "loss scaler", f32 + 2 * i64});
  const Workload& w = shape.workload;
  plan_loader(w.batch, ceil_div(w.data.validation_rows, w.batch.micro), shape.mesh.size(Axis::data),
              shape.device, plan);
  plan_group(shape, Formula("N", shape.mesh.world()), plan);
}

MemoryPlan plan_of_run(const Plans& plans, const RunShape& shape) {
  MemoryPlan plan = plans.memory_plan(shape);
  plan_surroundings(shape, plan);
  return plan;
}

std::vector<MemoryPlan> plans_of_world(const Plans& strategy, const RunShape& shape) {
  RunShape divided = shape;
  divided.mesh = strategy.mesh(shape.mesh.world());
  return of_world(divided, [&](const RunShape& rank) { return plan_of_run(strategy, rank); });
}

}  // namespace sc::detail
