#include "candidates.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>

#include "common/base/check.h"
#include "lessons/05_offload/offload_plan.h"
#include "lessons/06_infinity/infinity_plan.h"
#include "lessons/07_pipeline/pipeline_plan.h"
#include "lessons/08_weight_versions/weight_versions_plan.h"
#include "lessons/10_tensor_parallel/tensor_parallel_plan.h"
#include "lessons/plans.h"

namespace sc::choose {
namespace {

bool has(const StrategyPlans& strategy, std::string_view setting) {
  return std::ranges::find(strategy.settings, setting) != strategy.settings.end();
}

// One GPU: lesson 00 and what keeps states elsewhere. One rank's slice is the whole.
bool runs_on(std::int64_t gpus, const StrategyPlans& strategy) {
  const std::string& folder = strategy.folder;
  if (folder == "00_one_device") return gpus == 1;
  if (folder == "06_infinity") return true;
  if (folder == "05_offload") return gpus > 1 || !has(strategy, "parameters=sharded");
  if (has(strategy, "replicas=2")) return gpus >= 4 && gpus % 2 == 0;
  return gpus > 1;
}

Overlap overlap_on_host(const HostOptions& options) {
  return {.reduces_in_each = true,
          .gathers_in_each = options.parameters == ParametersOn::sharded,
          .updates = options.update == UpdateKind::delayed ? Updates::on_host_late : Updates::on_host};
}

// Of a strategy whose ranks have the whole model each.
Overlap overlap_of(const StrategyPlans& strategy) {
  if (const auto* plans = dynamic_cast<const OffloadPlans*>(strategy.plans.get()))
    return overlap_on_host(plans->options());
  if (const auto* plans = dynamic_cast<const InfinityPlans*>(strategy.plans.get()))
    return overlap_on_host(plans->options());
  if (strategy.folder < "02") return {.whole_update = true};
  return {.reduces_in_each = strategy.folder >= "03", .gathers_in_each = strategy.folder >= "04"};
}

Candidate candidate_with(const StrategyPlans& strategy) {
  const std::shared_ptr<const Plans> plans = strategy.plans;
  if (const auto pipeline = std::dynamic_pointer_cast<const PipelinePlans>(plans)) {
    return {.plans = strategy, .seconds = [pipeline](const RunShape& shape, const Rates& rates) {
              return pipeline_seconds(shape, pipeline->options(), rates);
            }};
  }
  if (const auto endless = std::dynamic_pointer_cast<const WeightVersionsPlans>(plans)) {
    return {.plans = strategy, .late = true, .seconds = [endless](const RunShape& shape, const Rates& rates) {
              return endless_seconds(shape, endless->options(), rates);
            }};
  }
  if (const auto parts = std::dynamic_pointer_cast<const TensorParallelPlans>(plans)) {
    return {.plans = strategy, .seconds = [parts](const RunShape& shape, const Rates& rates) {
              return tensor_seconds(shape, parts->comm_plan(shape), parts->options(), rates);
            }};
  }
  const Overlap overlap = overlap_of(strategy);
  return {.plans = strategy,
          .late = overlap.updates == Updates::on_host_late,
          .host = overlap.updates != Updates::on_gpu,
          .disk = strategy.folder == "06_infinity",
          .seconds = [overlap, plans](const RunShape& shape, const Rates& rates) {
            return step_seconds(shape, plans->comm_plan(shape), overlap, rates);
          }};
}

}  // namespace

RunShape shape_on(const StrategyPlans& plans, std::int64_t gpus, const Workload& workload) {
  RunShape shape;
  shape.workload = workload;
  const WorldSize ranks{static_cast<int>(gpus)};
  divide(shape, ranks, plans.plans->division(ranks));
  shape.device = DeviceKind::cuda, shape.ops = OpsBackend::fused, shape.comm = CommBackend::nccl;
  return shape;
}

std::vector<Candidate> candidates(std::int64_t gpus) {
  std::vector<Candidate> all;
  for (const StrategyPlans& strategy : lesson_plans())
    if (runs_on(gpus, strategy)) all.push_back(candidate_with(strategy));
  return all;
}

Candidate candidate_of(const std::string& folder, const std::vector<std::string>& settings) {
  return candidate_with(lesson_plans_of(folder, settings));
}

}  // namespace sc::choose
