#include "endless.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>

#include "common/base/check.h"
#include "common/pipeline/translated.h"

namespace sc {
namespace {

using pipedream::VersionRule;

void refuse_what_has_no_meaning(const RunShape& shape, const VersionOptions& options) {
  const Workload& w = shape.workload;
  if (w.model.tied)
    refuse_setting(
        "model.tied",
        "the head and the embedding would be one matrix on two stages, which update it at different times",
        "an untied model: --workload configs/tiny_untied.json, or --set model.tied=false");
  if (w.precision.dtype == DType::f16)
    refuse_setting(
        "precision.dtype",
        "fp16 needs one loss scale for a whole step, and micro-batches in flight would have several",
        "bf16 or fp32");
  if (w.optim.nonfinite == OnNonFinite::skip)
    refuse_setting(
        "optim.nonfinite",
        "a stage has made its update before it knows of the others' gradients: none can be skipped by all",
        "optim.nonfinite=stop");
  if (options.versions == VersionRule::none && w.activations == Activations::recompute)
    refuse_setting(
        "activations",
        "with versions=none backward would recompute with other weights than forward had: another algorithm",
        "activations=keep or recompute_gelu, or versions=stash");
}

// How often a stage updates: as asked for, if M micro-batches, S stages and the rule allow it.
std::int64_t update_every_of(const RunShape& shape, const VersionOptions& options) {
  const std::int64_t M = micro_batches_of(shape), S = shape.mesh.size(Axis::stages);
  if (M < S)
    refuse_setting(
        "batch.micro",
        fmt::format("{} micro-batches a step are fewer than the {} stages: they would not fill the pipeline",
                    M, S),
        fmt::format("a larger batch.global, a smaller batch.micro, or -n {} at most", M));
  const bool two = options.versions == VersionRule::two_buffers;
  if (options.update_every == 0) return two ? M : 1;
  if (M % options.update_every != 0)
    refuse_setting("update_every",
                   fmt::format("{} does not divide the {} micro-batches of a step", options.update_every, M),
                   "a divisor, or auto");
  if (two && options.update_every < S)
    refuse_setting(
        "update_every",
        fmt::format(
            "two versions are enough for an update every {} micro-batches at least, as many as there are "
            "stages, and not every {}",
            S, options.update_every),
        fmt::format("{} or more, auto, or versions=stash", S));
  return options.update_every;
}

pipedream::Windows windows_of(const RunShape& shape, const VersionOptions& options,
                              std::int64_t update_every) {
  const bool two = options.versions == VersionRule::two_buffers;
  return translated("versions", [&] {
    return pipedream::Windows({.family = two ? pipedream::Family::two_bw : pipedream::Family::pipedream,
                               .stages = static_cast<int>(shape.mesh.size(Axis::stages)),
                               .microbatches = static_cast<int>(micro_batches_of(shape)),
                               .versions = two ? VersionRule::stash : options.versions,
                               .update_every = static_cast<int>(update_every)});
  });
}

const RunShape& checked(const RunShape& shape, const VersionOptions& options) {
  refuse_what_has_no_meaning(shape, options);
  return shape;
}

}  // namespace

// [anchor: how-far-behind]
// Stage 0 makes an update S - 1 micro-batches later than the last stage. If the last stage clipped an update
// by that update's own norm, it would wait for stage 0: it takes the norm of norm_lag updates before, S - 1
// micro-batches rounded up to whole updates. A step is complete when stage 0 has made its last update, and
// after another norm_lag updates has waited for its norm.
Endless::Endless(const RunShape& shape, const VersionOptions& of)
    : options(of),
      microbatches(micro_batches_of(checked(shape, options))),
      update_every(update_every_of(shape, options)),
      updates_a_step(microbatches / update_every),
      windows(windows_of(shape, options, update_every)),
      share(shape, stage_options(options), windows.proven()),
      norm_lag(ceil_div(shape.mesh.size(Axis::stages) - 1, update_every)),
      result_lag(ceil_div(2 * norm_lag * update_every, microbatches)) {}

std::int64_t Endless::updates_after(int stage, std::int64_t done) const {
  const std::int64_t first = std::min<std::int64_t>(done, pipedream::Windows::kSteady);
  std::int64_t updates = (done - first) * updates_a_step;
  for (std::int64_t t = 0; t < first; ++t)
    updates += std::ranges::count(windows.window(stage, t), pipedream::Kind::step, &pipedream::Action::kind);
  return updates;
}

// Each update whose norm has not clipped one yet has sums of all stages and of this one; besides there are
// the sums that clip. Each step whose result is not there yet has its numbers, on the device and on the host.
void plan_late_sums(const Endless& endless, MemoryPlan& plan) {
  const Formula sums = 8 * (Formula("norm_lag", endless.norm_lag) + 1) + 4,
                results = Endless::kResult * (Formula("result_lag", endless.result_lag) + 2);
  plan.add({Purpose::workspace, "sums and results in flight", sums + results, DType::f64});
  plan.add({Purpose::workspace, "results_host", results, DType::f64, Place::pinned});
}

}  // namespace sc
