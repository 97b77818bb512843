#include "candidates.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>

#include "common/base/check.h"
#include "lessons/04_zero3/zero3_plan.h"
#include "lessons/05_offload/offload_plan.h"
#include "lessons/06_infinity/infinity_plan.h"
#include "lessons/07_pipeline/pipeline_plan.h"
#include "lessons/08_weight_versions/weight_versions_plan.h"
#include "lessons/10_tensor_parallel/tensor_parallel_plan.h"
#include "lessons/11_combined/combined_plan.h"
#include "lessons/plans.h"

namespace sc::choose {
namespace {

// Whether a strategy makes sense on so many GPUs: on one lesson 00, and what keeps states off the device,
// since one rank's slice is the whole.
bool runs_on(std::int64_t gpus, const StrategyPlans& strategy) {
  const std::string& folder = strategy.folder;
  if (folder == "00_one_device") return gpus == 1;
  if (folder == "06_infinity") return true;
  if (folder >= "11") return false;  // groupings() has lesson 11's meshes; a later one has no clock here
  if (folder == "05_offload") return gpus > 1 || !has(strategy, "parameters=sharded");
  if (has(strategy, "replicas=2")) return gpus >= 4 && gpus % 2 == 0;
  return gpus > 1;
}

Overlap overlap_on_host(const HostOptions& options) {
  return {.reduces_in_each = true,
          .gathers_in_each = options.parameters == ParametersOn::sharded,
          .updates = options.update == UpdateKind::delayed ? Updates::on_host_late
                     : options.update == UpdateKind::early ? Updates::on_host_early
                                                           : Updates::on_host,
          .resident = options.resident};
}

// What hides which messages, for a strategy whose ranks have the whole model each.
Overlap overlap_of(const StrategyPlans& strategy) {
  if (const auto* plans = dynamic_cast<const OffloadPlans*>(strategy.plans.get()))
    return overlap_on_host(plans->options());
  if (const auto* plans = dynamic_cast<const InfinityPlans*>(strategy.plans.get()))
    return overlap_on_host(plans->options());
  if (const auto* plans = dynamic_cast<const Zero3Plans*>(strategy.plans.get()))
    return {.reduces_in_each = true, .gathers_in_each = true, .slices = plans->options().shard_ranks};
  if (strategy.folder < "02") return {.slices = 1};
  return {.reduces_in_each = strategy.folder >= "03"};
}

Candidate candidate_with(const StrategyPlans& strategy) {
  const std::shared_ptr<const Plans> plans = strategy.plans;
  if (const auto pipeline = std::dynamic_pointer_cast<const PipelinePlans>(plans)) {
    return {
        .plans = strategy,
        .seconds = [pipeline](
                       const RunShape& shape,
                       const Rates& rates) { return pipeline_seconds(shape, pipeline->options(), rates); },
        .at_least = [](const RunShape& shape,
                       const Rates& rates) { return stages_take_at_least(shape, TokenShare::split, rates); }};
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
  if (const auto mesh = std::dynamic_pointer_cast<const CombinedPlans>(plans)) {
    return {.plans = strategy,
            .seconds = [mesh](const RunShape& shape,
                              const Rates& rates) { return combined_seconds(shape, mesh->options(), rates); },
            .at_least =
                [mesh](const RunShape& shape, const Rates& rates) {
                  return stages_take_at_least(shape, mesh->options().tokens, rates);
                },
            .least_is_known = true};
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

bool has(const StrategyPlans& strategy, std::string_view setting) {
  return std::ranges::find(strategy.settings, setting) != strategy.settings.end();
}

RunShape shape_on(const StrategyPlans& plans, std::int64_t gpus, const Workload& workload) {
  RunShape shape;
  shape.workload = workload;
  shape.mesh = plans.plans->mesh(WorldSize{static_cast<int>(gpus)});
  shape.device = DeviceKind::cuda, shape.ops = OpsBackend::fused, shape.comm = CommBackend::nccl;
  return shape;
}

std::vector<Candidate> candidates(std::int64_t gpus) {
  std::vector<Candidate> all;
  for (const StrategyPlans& strategy : lesson_plans())
    if (runs_on(gpus, strategy)) all.push_back(candidate_with(strategy));
  return all;
}

namespace {

std::vector<std::int64_t> divisors(std::int64_t n) {
  std::vector<std::int64_t> all;
  for (std::int64_t i = 1; i <= n; ++i)
    if (n % i == 0) all.push_back(i);
  return all;
}

std::string kind_of(const Mesh& mesh) {
  std::string kind;
  for (const Axis axis : mesh.axes()) {
    const std::string_view name =
        axis == Axis::stages ? "stages" : kAxes[static_cast<std::size_t>(axis)].name;
    kind += (kind.empty() ? "" : " x ") + std::string(name);
  }
  return kind;
}

void add_mesh(const Mesh& mesh, std::int64_t layers, std::vector<Candidate>& all) {
  const auto add = [&](const std::vector<std::string>& schedule) {
    std::vector<std::string> settings = {fmt::format("mesh={}x{}x{}", mesh.size(Axis::stages),
                                                     mesh.size(Axis::data), mesh.size(Axis::tensor))};
    settings.insert(settings.end(), schedule.begin(), schedule.end());
    all.push_back(candidate_of("11_combined", settings));
    all.back().kind = kind_of(mesh);
  };
  add({});
  const std::int64_t stages = mesh.size(Axis::stages);
  if (stages == 1) return;
  add({"warmup=1"});
  for (const std::int64_t chunks : {2, 4})
    if (stages * chunks <= layers) add({"schedule=interleaved", fmt::format("chunks={}", chunks)});
}

}  // namespace

std::vector<Candidate> groupings(std::int64_t gpus, std::int64_t node, const GptConfig& model) {
  std::vector<Candidate> all;
  for (const std::int64_t ranks : divisors(gpus)) {
    if (ranks == 1 || ranks == gpus) continue;
    all.push_back(candidate_of("04_zero3", {fmt::format("shard_ranks={}", ranks)}));
    all.back().kind = "hybrid sharding";
  }
  for (const std::int64_t tensor : divisors(gpus)) {
    if (tensor > std::min(model.heads, node) || node % tensor != 0) continue;
    for (const std::int64_t stages : divisors(gpus / tensor)) {
      const Mesh mesh(WorldSize{static_cast<int>(gpus)}, {{Axis::stages, stages}, {Axis::tensor, tensor}});
      if (stages <= model.layers && mesh.axes().size() > 1) add_mesh(mesh, model.layers, all);
    }
  }
  return all;
}

std::vector<Candidate> residents(std::int64_t gpus, const GptConfig& model) {
  std::vector<Candidate> all;
  const std::int64_t units = ParamLayout(model, WorldSize{1}).num_units();
  for (const char* const folder : {"05_offload", "06_infinity"})
    for (const bool sharded : {false, true})
      for (const bool early : {false, true}) {
        if ((sharded && gpus == 1) || (early && std::string_view(folder) == "06_infinity")) continue;
        for (std::int64_t resident = early ? 0 : 1; resident < units;
             resident = std::max<std::int64_t>(1, 2 * resident)) {
          std::vector<std::string> settings;
          if (sharded) settings.emplace_back("parameters=sharded");
          if (early) settings.emplace_back("update=early");
          if (resident > 0) settings.push_back(fmt::format("resident={}", resident));
          all.push_back(candidate_of(folder, settings));
          all.back().kind = fmt::format("{}{}", folder, sharded ? ", sharded" : "");
          all.back().by_degrees = true;
        }
      }
  return all;
}

Candidate candidate_of(const std::string& folder, const std::vector<std::string>& settings) {
  return candidate_with(lesson_plans_of(folder, settings));
}

}  // namespace sc::choose
