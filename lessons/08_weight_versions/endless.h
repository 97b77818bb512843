// A run without a flush, as shape and settings alone determine it: its schedule in windows, and how far
// results lag behind. No torch.
#pragma once

#include "common/pipeline/share.h"
#include "common/pipeline/steps.h"
#include "pipedream/windows.h"
#include "weight_versions_plan.h"

namespace sc {

struct Endless {
  ///   Errors  InputError (exit 64): a tied model, fp16, optim.nonfinite=skip, fewer micro-batches than
  ///           stages, update_every that does not divide them or is too small for two_buffers, versions=none
  ///           with activations=recompute.
  Endless(const RunShape& shape, const VersionOptions& options);

  VersionOptions options;
  std::int64_t microbatches;    // M of one step
  std::int64_t update_every;    // micro-batches from update to update
  std::int64_t updates_a_step;  // M / update_every
  pipedream::Windows windows;
  Share share;              // its schedule is four windows and the rest
  std::int64_t norm_lag;    // updates from the one whose norm clips to the one that it clips
  std::int64_t result_lag;  // windows from a step's own to that in which all stages know its loss and norm

  /// A step has kResult numbers: four sums, and at kNorm the norm of its last update.
  static constexpr std::int64_t kNorm = 4, kResult = 5;
  [[nodiscard]] Steps steps() const { return {share.schedule, &windows}; }
  /// How many updates the stage has made after that many windows.
  [[nodiscard]] std::int64_t updates_after(int stage, std::int64_t windows) const;
  /// Whether tokens are kept: the first of several stages needs them in a backward before which the loader
  /// has overwritten them.
  [[nodiscard]] bool keeps_tokens() const { return share.first && !share.last; }
};

/// Adds what LateSums takes from the ledger.
void plan_late_sums(const Endless& endless, MemoryPlan& plan);

}  // namespace sc
