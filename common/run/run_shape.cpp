#include "common/run/run_shape.h"

#include <ATen/Parallel.h>
#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <sstream>

#include "common/base/check.h"
#include "common/run/describe.h"

namespace sc::detail {

// On a CPU cores serve more ranks instead, because OpenMP's threads would spin on cores that are taken. With
// a GPU the host's threads make the initial weights and gather tokens.
int default_threads(DeviceKind device, std::int64_t cores, WorldSize ranks_here) {
  if (device == DeviceKind::cpu) return 1;
  return static_cast<int>(std::max<std::int64_t>(1, cores / to_int(ranks_here)));
}

RunShape shape_of_run(RunShape prepared, const CommandLine& line, const Launch& launch) {
  if (line.threads > 0) {
    at::set_num_threads(line.threads);
  } else if (std::getenv("OMP_NUM_THREADS") == nullptr) {
    at::set_num_threads(default_threads(prepared.device, describe_hardware().cores, launch.local_world));
  }
  prepared.rank = launch.rank;
  prepared.comm = comm_backend(prepared.device, line.share_gpu, launch.launched());
  prepared.threads = at::get_num_threads();
  return prepared;
}

Fault fault_of(const TrainJob& job) {
  if (job.line.inject.empty()) return {};
  const Fault fault = Fault::parse(job.line.inject, job.launch.world);
  const std::int64_t steps = job.shape.workload.steps;
  if (fault.step() >= job.first_step && fault.step() < steps) return fault;
  throw InputError(ExitCode::usage, "--inject " + job.line.inject,
                   fmt::format("this run's steps are {} to {}", job.first_step, steps - 1),
                   "one of them (they count from 0), or more --steps");
}

bool poisons(const Fault& fault, const RunShape& shape, std::int64_t step) {
  return fault.nan_at(fault.rank(), step) && shape.at(Axis::data) == shape.mesh.at(Axis::data, fault.rank());
}

// This lesson with settings that need less memory.
std::vector<StrategyPlans> smaller_of(const AnyLesson& lesson, const Facts& facts) {
  std::vector<StrategyPlans> smaller;
  for (const std::string& setting : facts.smaller) {
    std::istringstream words(setting);
    const std::vector<std::string> settings{std::istream_iterator<std::string>(words), {}};
    smaller.push_back({lesson.info.name, lesson.info.name, lesson.plans.with(settings), settings});
  }
  return smaller;
}

// The strategies that shard more than this lesson.
std::vector<StrategyPlans> strategies_after(const LessonInfo& info) {
  std::vector<StrategyPlans> after;
  for (const StrategyPlans& strategy : info.strategies)
    if (strategy.folder > info.name && strategy.advised) after.push_back(strategy);
  return after;
}

LimitedRun limited_run(const AnyLesson& lesson, const RunShape& shape, const Facts& facts, Bytes cap) {
  return {.shape = shape,
          .cap = cap,
          .smaller = smaller_of(lesson, facts),
          .strategies = strategies_after(lesson.info),
          .virtual_ranks = lesson.plans.virtual_ranks(),
          .mesh = [&lesson](WorldSize world) { return lesson.plans.mesh(world); },
          .one_rank_only = lesson.info.one_rank_only,
          .plans = [&lesson](const RunShape& changed) { return plans_of_world(lesson.plans, changed); }};
}

void refuse_more_than(Bytes cap, const TrainJob& job, const std::string& place, std::int64_t sharing) {
  LimitedRun run = limited_run(job.lesson, job.shape, job.plans.facts, cap);
  run.place = place, run.sharing = sharing;
  std::vector<MemoryPlan> stages;
  for (const RankPlan& rank : job.plans.world) stages.push_back(rank.memory);
  refuse_what_does_not_fit(run, stages);
}

}  // namespace sc::detail
