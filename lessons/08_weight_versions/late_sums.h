// What updates and steps come to, summed over all stages. Stage 0 makes an update S - 1 micro-batches after
// the last stage, and nobody waits for it: these numbers arrive late.
#pragma once

#include <memory>
#include <vector>

#include "common/strategy/strategy.h"
#include "endless.h"
#include "ring.h"

namespace sc {

/// The numbers of updates and steps as a checkpoint has them, a row for each in ascending order.
struct SavedSums {
  using Rows = std::vector<std::vector<double>>;
  Rows of_all;   // updates that all stages have made, and whose norm still clips one
  Rows own;      // this stage's part of updates that it has made and stage 0 has not
  Rows results;  // the last step that is complete, and the steps that are not
};

class LateSums {
 public:
  /// Bytes: plan_late_sums. Collective. `context` and `endless` outlive it.
  LateSums(RunContext& context, const Endless& endless);

  /// [4] fp64, see common/optim/grad_norm.h: this stage's part of an update, until it leaves.
  [[nodiscard]] at::Tensor& operator[](std::int64_t update) { return updates_[update].sums; }
  /// Called when this stage's part of an update is complete: starts its sum over all stages, and waits for
  /// that of the update norm_lag before. Returns [4] fp64, what clips this update: the squares of the older
  /// one, and a flag that is set where the older one, or this stage's part of this one, is not finite.
  const at::Tensor& leave(std::int64_t update);

  /// Sends a step's numbers to the host, beside whatever the device does next; zeros for a step below 0.
  ///   Errors  ClaimError: an update of the step is not in its numbers yet, so result_lag is too small.
  void send_result(std::int64_t step);
  /// At a run's end: waits for those of the step's updates whose norms have clipped no other.
  void complete(std::int64_t step);
  /// Waits for what was sent: [5] fp64 on the host, the four sums and the norm of the step's last update.
  [[nodiscard]] const at::Tensor& result(std::int64_t step);

  /// Forgets an update 0 that was made before the first step. Waits for its sum over all stages.
  void reset();

  /// Numbers for a checkpoint and from one (in_flight.cpp), after that many windows and updates here.
  ///   Errors  std::out_of_range: rows of another run.
  [[nodiscard]] SavedSums saved(std::int64_t windows, std::int64_t updates);
  void restore(const SavedSums& saved, std::int64_t windows, std::int64_t updates);

 private:
  struct Update {
    at::Tensor sums, own;  // [4] fp64: of all stages once `summed` is there; this stage's alone
    Ticket summed;
  };
  struct Result {
    at::Tensor numbers, host;  // [5] fp64
    Ticket left;
  };
  void note(std::int64_t update);

  RunContext& context_;
  const Endless& endless_;
  /// A group of all stages for these sums alone: stages reach them at different times, but in one order.
  std::unique_ptr<Communicator> everyone_;
  at::Tensor clip_by_;  // [4] fp64
  Ring<Update> updates_;
  Ring<Result> results_;
  std::int64_t noted_ = 0;  // updates that have been added to their steps' results
};

}  // namespace sc
