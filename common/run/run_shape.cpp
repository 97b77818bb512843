#include "common/run/run_shape.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdlib>

#include "common/data/loader.h"
#include "common/run/describe.h"
#include "common/strategy/group_plan.h"

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
  shape.stages = job.lesson.plans.division(shape.world).stages;
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

void plan_surroundings(const RunShape& shape, MemoryPlan& plan) {
  plan.add(Purpose::workspace, "step scalars", "lr, step, clip factor, norm",
           Bytes(3 * size_of(DType::f32) + size_of(DType::i64)));
  if (scales_loss(shape)) {
    plan.add(Purpose::workspace, "loss scaler", "scale, good steps, overflows",
             Bytes(size_of(DType::f32) + 2 * size_of(DType::i64)));
  }
  Loader::plan(shape.workload, data_ranks(shape), shape.device, plan);
  plan_group(shape, shape.world, plan);
}

MemoryPlan plan_of_run(const AnyLesson& lesson, const RunShape& shape) {
  MemoryPlan plan = lesson.plans.memory_plan(shape);
  plan_surroundings(shape, plan);
  return plan;
}

namespace {

template <class Of>
auto of_stages(RunShape shape, const Of& of) {
  std::vector<decltype(of(shape))> plans;
  for (std::int64_t stage = 0; stage < shape.stages; ++stage) {
    shape.rank = Rank{static_cast<int>(stage * data_ranks(shape))};
    plans.push_back(of(shape));
  }
  return plans;
}

}  // namespace

std::vector<MemoryPlan> plans_of_stages(const AnyLesson& lesson, const RunShape& shape) {
  return of_stages(shape, [&](const RunShape& rank) { return plan_of_run(lesson, rank); });
}

std::vector<MemoryPlan> plans_of_stages(const StrategyPlans& strategy, const RunShape& shape) {
  RunShape divided = shape;
  divided.stages = strategy.plans->division(shape.world).stages;
  return of_stages(divided, [&](const RunShape& rank) {
    MemoryPlan plan = strategy.plans->memory_plan(rank);
    plan_surroundings(rank, plan);
    return plan;
  });
}

std::vector<RankPlan> rank_plans_of(const AnyLesson& lesson, const RunShape& shape) {
  return of_stages(shape, [&](const RunShape& rank) {
    return RankPlan{plan_of_run(lesson, rank), lesson.plans.comm_plan(rank)};
  });
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
          .division = [&lesson](WorldSize world) { return lesson.plans.division(world); },
          .one_rank_only = lesson.info.one_rank_only,
          .plans = [&lesson](const RunShape& changed) { return plans_of_stages(lesson, changed); }};
}

}  // namespace sc::detail
