// Cuts a schedule without a flush, which has no end, into windows of one batch each: what a stage does in one
// call of the executor, for any number of batches.
#pragma once

#include <cstdint>
#include <vector>

#include "pipedream/generate.h"
#include "pipedream/schedule.h"

namespace sc::pipedream {

/// One stage's list, cut before the first forward of every batch except the first; `microbatches` per batch.
/// Receives of a later batch's activations move after the cut, because they are never sent if that batch
/// never comes. Receives of gradients stay, because their microbatches are already in flight.
std::vector<std::vector<Action>> cut_at_batches(const std::vector<Action>& list, int microbatches);

/// The endless schedule of an asynchronous family.
///   Window t   on every stage the forwards of batch t; and the backwards and steps up to those of the
///   microbatch that is S - 1 - s behind. At its end the last stage has all losses of batch t.
///   Steady     from window kSteady on each window is the one before with shifted numbers (microbatches by M,
///              versions by M / update_every). Windows before it differ in the versions that they read, and
///              window 0 also in its backwards.
class Windows {
 public:
  static constexpr int kSteady = 2;
  /// The number of batches in `batch` is ignored.
  ///   Errors  InputError (usage) as generate(), and for fewer microbatches than stages: a batch would then
  ///           not reach the steady state. logic_error if the executed schedule does not pass check().
  explicit Windows(GenerateOptions batch);

  /// What a stage does for batch `t`, 0-based.
  [[nodiscard]] std::vector<Action> window(int stage, std::int64_t t) const;
  /// What remains of a stage's list after `batches` windows: the last backwards, and the steps that they
  /// complete.
  [[nodiscard]] std::vector<Action> rest(int stage, std::int64_t batches) const;
  /// All windows and the rest as one schedule, for few batches.
  [[nodiscard]] Schedule whole(int batches) const;
  /// Four windows and the rest: they need as many versions, activations and buffers as any number of windows.
  [[nodiscard]] const Schedule& proven() const { return proven_; }

 private:
  [[nodiscard]] std::vector<Action> shifted(std::vector<Action> list, std::int64_t batches) const;

  GenerateOptions batch_;
  int steps_ = 1;  // of one batch
  Schedule proven_;
  std::vector<std::vector<std::vector<Action>>> cut_;  // by stage, by batch
};

}  // namespace sc::pipedream
