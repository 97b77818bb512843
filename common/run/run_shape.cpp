#include "common/run/run_shape.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdlib>

#include "common/comm/mpi/mpi_communicator.h"
#include "common/comm/staged/staged_communicator.h"
#include "common/data/loader.h"
#include "common/run/describe.h"

namespace sc::detail {

CommBackend comm_backend(DeviceKind device, bool share_gpu, bool apart) {
  if (device == DeviceKind::cuda) return share_gpu ? CommBackend::staged : CommBackend::nccl;
  return apart ? CommBackend::mpi : CommBackend::local;
}

// More cores of a CPU are for more ranks, and OpenMP's threads spin where a core is taken. Beside a GPU the
// host makes the first weights and gathers tokens.
int default_threads(DeviceKind device, std::int64_t cores, WorldSize ranks_here) {
  if (device == DeviceKind::cpu) return 1;
  return static_cast<int>(std::max<std::int64_t>(1, cores / to_int(ranks_here)));
}

RunShape shape_of_run(const TrainJob& job) {
  RunShape shape;
  shape.workload = job.config.workload;
  shape.world = job.launch.world;
  shape.rank = job.launch.rank;
  shape.device = job.device;
  shape.ops = job.ops;
  shape.comm = comm_backend(job.device, job.line.share_gpu, job.launch.launched());
  if (job.line.threads > 0) {
    at::set_num_threads(job.line.threads);
  } else if (std::getenv("OMP_NUM_THREADS") == nullptr) {
    at::set_num_threads(default_threads(job.device, describe_hardware().cores, job.launch.local_world));
  }
  shape.threads = at::get_num_threads();
  return shape;
}

void plan_surroundings(const RunShape& shape, std::int64_t data_ranks, MemoryPlan& plan) {
  plan.add(Purpose::workspace, "step scalars", "lr, step, clip factor, norm",
           Bytes(3 * size_of(DType::f32) + size_of(DType::i64)));
  if (scales_loss(shape)) {
    plan.add(Purpose::workspace, "loss scaler", "scale, good steps, overflows",
             Bytes(size_of(DType::f32) + 2 * size_of(DType::i64)));
  }
  Loader::plan(shape.workload, data_ranks, shape.device, plan);
  if (shape.comm != CommBackend::local && to_int(shape.world) > 1) {
    plan.add(shape.device == DeviceKind::cpu ? Purpose::communication : Purpose::host, "mpi scratch",
             "4 (N-1) 256 KiB", MpiCommunicator::scratch_bytes(shape.world));
  }
  if (shape.comm == CommBackend::staged) {
    plan.add(Purpose::host, "staged scratch", "2 N MiB", StagedCommunicator::scratch_bytes(shape.world));
  }
}

MemoryPlan plan_of_run(const AnyLesson& lesson, const RunShape& shape) {
  MemoryPlan plan = lesson.memory_plan(shape);
  plan_surroundings(shape, to_int(shape.world), plan);
  return plan;
}

MemoryPlan plan_of_run(const StrategyPlans& strategy, const RunShape& shape) {
  MemoryPlan plan = strategy.memory_plan(shape);
  plan_surroundings(shape, to_int(shape.world), plan);
  return plan;
}

// Those that divide more than this lesson.
std::vector<StrategyPlans> strategies_after(const LessonInfo& info) {
  std::vector<StrategyPlans> after;
  bool found = false;
  for (const StrategyPlans& strategy : info.strategies) {
    if (found) after.push_back(strategy);
    found = found || strategy.folder == info.name;
  }
  return after;
}

LimitedRun limited_run(const AnyLesson& lesson, const RunShape& shape, Bytes cap) {
  return {.shape = shape,
          .cap = cap,
          .strategies = strategies_after(lesson.info),
          .slices = lesson.slices(),
          .one_rank_only = lesson.info.one_rank_only,
          .plan = [&lesson](const RunShape& changed) { return plan_of_run(lesson, changed); }};
}

}  // namespace sc::detail
