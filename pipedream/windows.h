// A schedule without a flush has no end. Here it is in windows of one batch each: what a stage does in one
// call of whoever executes it, for as many batches as there are.
#pragma once

#include <cstdint>
#include <vector>

#include "pipedream/generate.h"
#include "pipedream/schedule.h"

namespace sc::pipedream {

/// One stage's list, cut before the first forward of every batch but the first; `microbatches` of them a
/// batch.
/// Receives of a later batch's activations move behind the cut: where that batch never comes, nobody sends
/// them.
/// Receives of gradients stay: they are of microbatches that are on their way.
std::vector<std::vector<Action>> cut_at_batches(const std::vector<Action>& list, int microbatches);

/// The endless schedule of an asynchronous family.
///   Window t   on every stage the forwards of batch t; and the backwards and steps up to those of the
///              microbatch that is S - 1 - s behind. The last stage has all losses of batch t at its end.
///   Steady     from window kSteady on each is the one before with shifted numbers (microbatches by M,
///              versions by M / update_every). Windows before it differ in the versions that they read, and
///              window 0 in its backwards as well.
class Windows {
 public:
  static constexpr int kSteady = 2;
  /// batch: its `batches` is ignored.
  ///   Errors  InputError (usage) as generate(), and for fewer microbatches than stages: a batch would then
  ///           not
  ///           reach the steady state.  logic_error if what is executed does not pass check().
  explicit Windows(GenerateOptions batch);

  /// What the stage does for batch `t`, 0-based.
  [[nodiscard]] std::vector<Action> window(int stage, std::int64_t t) const;
  /// What is left behind `batches` windows: the last backwards, and the steps they complete.
  [[nodiscard]] std::vector<Action> rest(int stage, std::int64_t batches) const;
  /// Both as one schedule. Of few batches.
  [[nodiscard]] Schedule whole(int batches) const;
  /// Four windows and the rest: as many versions, activations and buffers as any number of them need.
  [[nodiscard]] const Schedule& proven() const { return proven_; }

 private:
  [[nodiscard]] std::vector<Action> shifted(std::vector<Action> list, std::int64_t batches) const;

  GenerateOptions batch_;
  int steps_ = 1;  // of one batch
  Schedule proven_;
  std::vector<std::vector<std::vector<Action>>> cut_;  // by stage, by batch
};

}  // namespace sc::pipedream
