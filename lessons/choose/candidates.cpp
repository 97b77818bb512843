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
#include "lessons/07_pipeline/pipeline.h"
#include "lessons/08_weight_versions/weight_versions.h"

namespace sc::choose {
namespace {

using Settings = std::vector<std::string>;

// A strategy whose ranks have the whole model each.
template <Strategy S>
Candidate whole_model(const char* folder, const char* name, const Overlap& overlap,
                      const typename S::Options& options = {}, const Settings& settings = {}) {
  StrategyPlans plans = plans_of<S>(folder, name, options);
  const auto comm_plan = plans.comm_plan;
  return {.plans = std::move(plans),
          .settings = settings,
          .late = overlap.updates == Updates::on_host_late,
          .host = overlap.updates != Updates::on_gpu,
          .seconds = [overlap, comm_plan](const RunShape& shape, const Rates& rates) {
            return step_seconds(shape, comm_plan(shape), overlap, rates);
          }};
}

// A lesson's options with these settings.
template <Strategy S>
typename S::Options options_of(const Settings& settings) {
  typename S::Options options;
  const FieldSet fields = S::fields().bind(options);
  for (const std::string& setting : settings) {
    const auto equals = setting.find('=');
    fields.set(setting.substr(0, equals), {Value::Form::flag, setting.substr(equals + 1)}, setting);
  }
  return options;
}

template <class Options>
Candidate on_host(const Settings& settings) {
  constexpr bool kOnDisk = std::is_same_v<Options, InfinityOptions>;
  using S = std::conditional_t<kOnDisk, Infinity, Offload>;
  const Options options = options_of<S>(settings);
  const bool sharded = options.parameters == ParametersOn::sharded;
  const Overlap overlap{
      .reduces_in_each = true,
      .gathers_in_each = sharded,
      .updates = options.update == UpdateKind::delayed ? Updates::on_host_late : Updates::on_host};
  Candidate c = whole_model<S>(kOnDisk ? "06_infinity" : "05_offload", kOnDisk ? "infinity" : "offload",
                               overlap, options, settings);
  c.disk = kOnDisk;
  return c;
}

void add_offloads(bool several, std::vector<Candidate>& all) {
  all.push_back(on_host<OffloadOptions>({}));
  all.push_back(on_host<OffloadOptions>({"update=delayed"}));
  if (several) {  // one rank's slice is the whole
    all.push_back(on_host<OffloadOptions>({"parameters=sharded"}));
    all.push_back(on_host<OffloadOptions>({"parameters=sharded", "update=delayed"}));
  }
  all.push_back(on_host<InfinityOptions>({}));
  all.push_back(on_host<InfinityOptions>({"update=delayed", "grads_at=host"}));
  all.push_back(on_host<InfinityOptions>({"parameters=sharded", "params_at=disk"}));
}

Candidate pipelined(const Settings& settings) {
  const auto options = options_of<Pipeline>(settings);
  return {.plans = plans_of<Pipeline>("07_pipeline", "pipeline", options),
          .settings = settings,
          .seconds = [options](const RunShape& shape, const Rates& rates) {
            return pipeline_seconds(shape, options, rates);
          }};
}

Candidate without_flush(const Settings& settings) {
  const auto options = options_of<WeightVersions>(settings);
  return {.plans = plans_of<WeightVersions>("08_weight_versions", "weight versions", options),
          .settings = settings,
          .late = true,
          .seconds = [options](const RunShape& shape, const Rates& rates) {
            return endless_seconds(shape, options, rates);
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
  if (gpus == 1) {
    all.push_back(whole_model<ReferenceOrder>("00_one_device", "one device", {.whole_update = true}));
  } else {
    all.push_back(whole_model<DataParallel>("01_data_parallel", "data parallel", {.whole_update = true}));
    all.push_back(whole_model<Zero1>("02_zero1", "ZeRO-1", {}));
    all.push_back(whole_model<Zero2>("03_zero2", "ZeRO-2", {.reduces_in_each = true}));
    all.push_back(
        whole_model<Zero3>("04_zero3", "ZeRO-3", {.reduces_in_each = true, .gathers_in_each = true}));
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
