#include "common/run/run_shape.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <sstream>

#include "common/run/describe.h"

namespace sc::detail {

// More cores of a CPU are for more ranks, and OpenMP's threads spin where a core is taken. Beside a GPU the
// host makes the first weights and gathers tokens.
int default_threads(DeviceKind device, std::int64_t cores, WorldSize ranks_here) {
  if (device == DeviceKind::cpu) return 1;
  return static_cast<int>(std::max<std::int64_t>(1, cores / to_int(ranks_here)));
}

RunShape shape_of_run(const TrainJob& job) {
  RunShape shape;
  shape.workload = job.config.workload;
  shape.mesh = job.lesson.plans.mesh(job.launch.world);
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

// This lesson with what takes less.
std::vector<StrategyPlans> smaller_of(const AnyLesson& lesson, const RunShape& shape) {
  std::vector<StrategyPlans> smaller;
  for (const std::string& setting : lesson.plans.facts(shape).smaller) {
    std::istringstream words(setting);
    const std::vector<std::string> settings{std::istream_iterator<std::string>(words), {}};
    smaller.push_back({lesson.info.name, lesson.info.name, lesson.plans.with(settings), settings});
  }
  return smaller;
}

// Those that divide more than this lesson.
std::vector<StrategyPlans> strategies_after(const LessonInfo& info) {
  std::vector<StrategyPlans> after;
  bool found = false;
  for (const StrategyPlans& strategy : info.strategies) {
    if (found && strategy.folder != info.name && strategy.advised) after.push_back(strategy);
    found = found || strategy.folder == info.name;
  }
  return after;
}

LimitedRun limited_run(const AnyLesson& lesson, const RunShape& shape, Bytes cap) {
  return {.shape = shape,
          .cap = cap,
          .smaller = smaller_of(lesson, shape),
          .strategies = strategies_after(lesson.info),
          .virtual_ranks = lesson.plans.virtual_ranks(),
          .mesh = [&lesson](WorldSize world) { return lesson.plans.mesh(world); },
          .one_rank_only = lesson.info.one_rank_only,
          .plans = [&lesson](const RunShape& changed) { return plans_of_world(lesson.plans, changed); }};
}

}  // namespace sc::detail
