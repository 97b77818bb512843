#include "tests/exercises/fits.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>

#include "common/base/check.h"
#include "common/base/text.h"
#include "common/config/json_reader.h"
#include "common/config/validate.h"
#include "common/run/run_shape.h"
#include "lessons/05_offload/offload_plan.h"
#include "tests/exercises/check.h"

namespace sc::exercise {
namespace {

RunShape shape_of(const Workload& workload) {
  return {.workload = workload,
          .mesh = Mesh(WorldSize{kFitsLimits.ranks}),
          .device = DeviceKind::cuda,
          .ops = OpsBackend::fused,
          .comm = CommBackend::nccl};
}

std::vector<Setting> settings_in(const std::string& json, const std::string& name) {
  std::vector<Setting> settings;
  for (const JsonEntry& entry : read_json(json, name)) {
    if (std::find(kFitsKeys.begin(), kFitsKeys.end(), entry.path) == kFitsKeys.end())
      throw NotReached(fmt::format("{}: \"{}\" is given; what may change is {}", entry.key_where, entry.path,
                                   fmt::join(kFitsKeys, ", ")));
    settings.push_back({entry.path, entry.value.text, entry.value_where});
  }
  return settings;
}

// Refuses accumulation that is not whole, as validate() would too, but with ways out that the learner has.
void refuse_part_of_a_micro_batch(const ResolvedConfig& config) {
  const BatchConfig& batch = config.workload.batch;
  const std::int64_t rows = batch.global / kFitsLimits.ranks;
  if (rows % batch.micro == 0) return;
  throw NotReached(fmt::format("{}: batch.micro {} does not divide the {} rows that a rank has in a step",
                               origin_of(config.origins, "batch.micro"), batch.micro, rows));
}

constexpr Bytes kWorthNaming{100'000'000};

// The bytes of a plan by purpose, the largest first: "gradients 4.86 GB, ...".
std::string by_purpose(const MemoryPlan& plan, const std::vector<Place>& places, std::int64_t ranks) {
  std::vector<std::pair<Bytes, std::string_view>> parts;
  for_each_purpose([&](Purpose purpose) {
    Bytes bytes;
    for (const Place place : places) bytes += plan.of(purpose, place) * ranks;
    if (bytes >= kWorthNaming) parts.emplace_back(bytes, name_of(purpose));
  });
  std::sort(parts.begin(), parts.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<std::string> texts;
  for (const auto& [bytes, name] : parts) texts.push_back(fmt::format("{} {}", name, human_bytes(bytes)));
  return fmt::format("{}", fmt::join(texts, ", "));
}

std::string beyond(const std::string& who, Bytes held, Bytes limit, const std::string& parts) {
  return fmt::format("{} {} of {}: {} too many\n  {}", who, human_bytes(held), human_bytes(limit),
                     human_bytes(held - limit), parts);
}

}  // namespace

Bytes FitsAnswer::host() const {
  return (plan.total(Place::pinned) + plan.total(Place::host)) * kFitsLimits.ranks;
}

FitsAnswer read_answer(const std::string& json, const std::string& name) {
  try {
    FitsAnswer answer;
    const std::vector<Setting> settings = settings_in(json, name);
    OffloadPlans plans;
    const ResolvedConfig config = resolve({kFitsWorkload, "", settings}, plans.fields());
    answer.options = plans.options();
    refuse_part_of_a_micro_batch(config);
    validate(config, {.mesh = Mesh(WorldSize(kFitsLimits.ranks)), .device = DeviceChoice::cuda});
    answer.shape = shape_of(config.workload);
    answer.plan = plans.memory_plan(answer.shape);
    detail::plan_surroundings(answer.shape, answer.plan);
    answer.plan_command =
        fmt::format("lessons/05_offload/run.sh --plan --world {} --device cuda --workload {}",
                    kFitsLimits.ranks, kFitsWorkload);
    for (const Setting& setting : settings)
      answer.plan_command += fmt::format(" --set {}={}", setting.key, setting.value);
    return answer;
  } catch (const InputError& error) {
    throw NotReached(error.what());
  }
}

std::vector<std::string> missed_limits(const FitsAnswer& answer) {
  const FitsLimits& limits = kFitsLimits;
  std::vector<std::string> missed;
  if (answer.device() > limits.device)
    missed.push_back(beyond("a rank holds on its GPU", answer.device(), limits.device,
                            by_purpose(answer.plan, {Place::device}, 1)));
  if (answer.host() > limits.host)
    missed.push_back(beyond(fmt::format("{} ranks hold on the host", limits.ranks), answer.host(),
                            limits.host,
                            by_purpose(answer.plan, {Place::pinned, Place::host}, limits.ranks)));
  if (answer.shape.workload.batch.micro < limits.micro)
    missed.push_back(fmt::format("batch.micro is {}; at least {} rows are asked for",
                                 answer.shape.workload.batch.micro, limits.micro));
  if (answer.options.prefetch < limits.prefetch)
    missed.push_back(
        fmt::format("prefetch is {}; at least {} is asked for", answer.options.prefetch, limits.prefetch));
  return missed;
}

Bytes device_bytes(const StrategyPlans& lesson, const Workload& workload) {
  Bytes most;
  for (const MemoryPlan& plan : detail::plans_of_world(*lesson.plans, shape_of(workload)))
    most = std::max(most, plan.total());
  return most;
}

}  // namespace sc::exercise
