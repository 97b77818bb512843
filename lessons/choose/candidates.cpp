#include "candidates.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>

#include "common/base/check.h"
#include "lessons/00_one_device/reference_order.h"
#include "lessons/01_data_parallel/data_parallel.h"
#include "lessons/02_zero1/zero1.h"
#include "lessons/03_zero2/zero2.h"
#include "lessons/04_zero3/zero3.h"
#include "lessons/06_infinity/infinity.h"
#include "lessons/07_pipeline/pipeline_plan.h"
#include "lessons/08_weight_versions/weight_versions_plan.h"

namespace sc::choose {
namespace {

using Settings = std::vector<std::string>;

// A lesson's plans with these settings.
template <class P>
std::shared_ptr<P> plans_with(const Settings& settings) {
  auto plans = std::make_shared<P>();
  const FieldSet fields = plans->fields();
  for (const std::string& setting : settings) {
    const auto equals = setting.find('=');
    fields.set(setting.substr(0, equals), {Value::Form::flag, setting.substr(equals + 1)}, setting);
  }
  return plans;
}

// A strategy whose ranks have the whole model each.
Candidate whole_model(const StrategyPlans& strategy, const Overlap& overlap, const Settings& settings = {}) {
  return {.plans = strategy,
          .settings = settings,
          .late = overlap.updates == Updates::on_host_late,
          .host = overlap.updates != Updates::on_gpu,
          .seconds = [overlap, plans = strategy.plans](const RunShape& shape, const Rates& rates) {
            return step_seconds(shape, plans->comm_plan(shape), overlap, rates);
          }};
}

template <class P>
Candidate on_host(const char* folder, const char* name, const Settings& settings) {
  const auto plans = plans_with<P>(settings);
  const OffloadOptions& options = plans->options();
  const bool sharded = options.parameters == ParametersOn::sharded;
  const Overlap overlap{
      .reduces_in_each = true,
      .gathers_in_each = sharded,
      .updates = options.update == UpdateKind::delayed ? Updates::on_host_late : Updates::on_host};
  return whole_model({folder, name, plans}, overlap, settings);
}
Candidate offload(const Settings& settings) {
  return on_host<OffloadPlans>("05_offload", "offload", settings);
}
Candidate infinity(const Settings& settings) {
  Candidate candidate = on_host<InfinityPlans>("06_infinity", "infinity", settings);
  candidate.disk = true;
  return candidate;
}

void add_offloads(bool several, std::vector<Candidate>& all) {
  all.push_back(offload({}));
  all.push_back(offload({"update=delayed"}));
  if (several) {  // one rank's slice is the whole
    all.push_back(offload({"parameters=sharded"}));
    all.push_back(offload({"parameters=sharded", "update=delayed"}));
  }
  all.push_back(infinity({}));
  all.push_back(infinity({"update=delayed", "grads_at=host"}));
  all.push_back(infinity({"parameters=sharded", "params_at=disk"}));
}

Candidate pipelined(const Settings& settings) {
  const auto plans = plans_with<PipelinePlans>(settings);
  return {.plans = {"07_pipeline", "pipeline", plans},
          .settings = settings,
          .seconds = [plans](const RunShape& shape, const Rates& rates) {
            return pipeline_seconds(shape, plans->options(), rates);
          }};
}

Candidate without_flush(const Settings& settings) {
  const auto plans = plans_with<WeightVersionsPlans>(settings);
  return {.plans = {"08_weight_versions", "weight versions", plans},
          .settings = settings,
          .late = true,
          .seconds = [plans](const RunShape& shape, const Rates& rates) {
            return endless_seconds(shape, plans->options(), rates);
          }};
}

void add_pipelines(std::int64_t gpus, std::vector<Candidate>& all) {
  all.push_back(pipelined({}));
  if (gpus >= 4 && gpus % 2 == 0) all.push_back(pipelined({"replicas=2", "states=sharded"}));
  all.push_back(without_flush({}));
  all.push_back(without_flush({"versions=two_buffers"}));
}

}  // namespace

std::vector<Candidate> candidates(std::int64_t gpus) {
  std::vector<Candidate> all;
  const auto add = [&](const char* folder, const char* name, std::shared_ptr<const Plans> plans,
                       Overlap overlap) {
    all.push_back(whole_model({folder, name, std::move(plans)}, overlap));
  };
  if (gpus == 1) {
    add("00_one_device", "one device", std::make_shared<ReferenceOrderPlans>(), {.whole_update = true});
  } else {
    add("01_data_parallel", "data parallel", std::make_shared<DataParallelPlans>(), {.whole_update = true});
    add("02_zero1", "ZeRO-1", std::make_shared<Zero1Plans>(), {});
    add("03_zero2", "ZeRO-2", std::make_shared<Zero2Plans>(), {.reduces_in_each = true});
    add("04_zero3", "ZeRO-3", std::make_shared<Zero3Plans>(),
        {.reduces_in_each = true, .gathers_in_each = true});
  }
  add_offloads(gpus > 1, all);
  if (gpus > 1) add_pipelines(gpus, all);
  return all;
}

Candidate candidate_named(const std::string& folder, std::vector<std::string> settings) {
  if (folder == "07_pipeline") return pipelined(settings);
  if (folder == "08_weight_versions") return without_flush(settings);
  std::ranges::sort(settings);
  for (const std::int64_t gpus : {1, 4}) {
    for (Candidate& candidate : candidates(gpus)) {
      std::vector<std::string> own = candidate.settings;
      std::ranges::sort(own);
      if (candidate.plans.folder == folder && own == settings) return std::move(candidate);
    }
  }
  throw InputError(ExitCode::data, folder, fmt::format("is no candidate with [{}]", fmt::join(settings, " ")),
                   "add it to lessons/choose/candidates.cpp");
}

}  // namespace sc::choose
