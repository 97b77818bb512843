// What lesson 08 holds and sends, and its settings.
#include <spdlog/fmt/fmt.h>

#include <cmath>

#include "common/base/text.h"
#include "common/strategy/gradient_dtype.h"
#include "common/strategy/group_plan.h"
#include "pipedream/check.h"
#include "steady.h"
#include "weight_versions.h"

namespace sc {

using pipedream::VersionRule;

FieldTable<VersionOptions> WeightVersions::fields() {
  FieldTable<Options> table;
  table.add(
      {"versions", "", "which weights a micro-batch may see: the newest, or older ones that are kept for it"},
      choice<VersionRule>({{"none", VersionRule::none},
                           {"stash", VersionRule::stash},
                           {"vertical_sync", VersionRule::vertical_sync},
                           {"two_buffers", VersionRule::two_buffers}}),
      &Options::versions);
  table.add({"update_every", "micro-batches", "between two updates; auto: 1, with two_buffers all of a step"},
            choice_or_integer<std::int64_t>(
                {{"auto", 0}}, 1, [](std::int64_t n) { return n; }, [](std::int64_t n) { return n; }),
            &Options::update_every);
  table.add({"clip_norm", "",
             "whose norm clips an update: that of the newest one that all stages have made by then"},
            choice<ClipNorm>({{"lagged", ClipNorm::lagged}}), &Options::clip_norm);
  table.add({"split", "",
             "blocks of each stage: balanced (by operations, the head's counted), uniform, or 7,7,7,3"},
            text(), &Options::split);
  table.add(
      {"profile_in", "", "a file with pipedream's profile of the layers, for a balanced split; or none"},
      text(), &Options::profile_in);
  table.add({"costs", "", "a file with pipedream's costs, in seconds: predicts a step's time; or none"},
            text(), &Options::costs);
  table.add({"pace", "", "a file with pipedream's costs, in seconds: every action takes that long; or none"},
            text(), &Options::pace);
  table.add({"link_ms", "ms", "every message arrives so much later"}, real({.low = 0, .high = 60'000}),
            &Options::link_ms);
  return table;
}

MemoryPlan WeightVersions::memory_plan(const RunShape& shape, const Options& options) {
  refuse_other_reduce_dtype(shape);
  MemoryPlan plan;
  const Endless endless(shape, options);
  Stage::plan(shape, endless.share, plan);
  plan.add(Purpose::workspace, "sums and results in flight", "8 x numbers",
           bytes_of(Elements(2 * endless.numbers_of_sums() + 4 + endless.numbers_of_results()), DType::f64));
  plan.add(Purpose::workspace, "divisor", "4", bytes_of(Elements(1), DType::f32));
  plan.add(Purpose::workspace, "results_host", "8 x numbers",
           bytes_of(Elements(endless.numbers_of_results()), DType::f64), Place::pinned);
  const BatchConfig& batch = shape.workload.batch;
  if (endless.keeps_tokens())
    plan.add(Purpose::workspace, "tokens in flight", "8 S B T",
             bytes_of(Elements(shape.stages * batch.micro * batch.sequence), DType::i64));
  plan_group(shape, shape.world, plan);
  return plan;
}

// Of a window in the steady state, which the second one is: as many forwards as backwards, an all-reduce an update, and
// a step's numbers to the host.
CommPlan WeightVersions::comm_plan(const RunShape& shape, const Options& options) {
  CommPlan plan;
  const Endless endless(shape, options);
  plan_messages(shape, endless.windows.window(endless.share.stage, pipedream::Windows::kSteady), plan);
  plan.add(CommKind::all_reduce, DType::f64, Elements(4), shape.world, endless.updates_a_step);
  plan.add(CommKind::to_host, DType::f64, Elements(Endless::kResult), WorldSize{1});
  return plan;
}

std::string WeightVersions::predict(const RunShape& shape, const Options& options) {
  const Endless endless(shape, options);
  std::string versions;
  for (const pipedream::StageCounts& count : pipedream::count(endless.windows.proven()))
    versions += (versions.empty() ? "" : ", ") + std::to_string(count.versions);
  std::string text = fmt::format(
      "updates: one {}, {} a step, {} in all: warm-up and decay count them\n"
      "versions of the weights, by stage: {}\n",
      endless.update_every == 1 ? std::string("per micro-batch")
                                : fmt::format("every {} micro-batches", endless.update_every),
      endless.updates_a_step, human_count(shape.workload.steps * endless.updates_a_step), versions);
  if (shape.workload.optim.clip > 0 && endless.norm_lag > 0)
    text += fmt::format("clipping by the norm of {} update{} before; the first {} not clipped\n",
                        endless.norm_lag, endless.norm_lag == 1 ? "" : "s",
                        endless.norm_lag == 1 ? "is" : fmt::format("{} are", endless.norm_lag));
  if (!endless.share.costs) return text;
  const Steady steady = steady_by(endless, *endless.share.costs);
  const BatchConfig& batch = shape.workload.batch;
  return text +
         fmt::format(
             "time of a step, by {}\n  {:.2f} ms, idle {:.1f} %, {} tokens a second\n", options.costs,
             1e3 * steady.seconds, 1e2 * steady.idle,
             human_count(std::llround(static_cast<double>(batch.global * batch.sequence) / steady.seconds)));
}

}  // namespace sc
