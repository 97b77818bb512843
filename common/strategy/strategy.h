// The base class of lessons, and what a lesson is given.
#pragma once

#include <concepts>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/comm/communicator.h"
#include "common/comm/copies/copies.h"
#include "common/data/batch.h"
#include "common/memory/ledger.h"
#include "common/memory/plan.h"
#include "common/model/gpt.h"
#include "common/optim/adamw.h"
#include "common/optim/grad_norm.h"
#include "common/strategy/plans.h"
#include "common/strategy/state_slice.h"
#include "common/watch/comm_op.h"
#include "common/watch/comm_record.h"
#include "common/watch/timeline.h"
#include "common/watch/timetable.h"

namespace sc {

/// What every strategy is built from. The referenced objects outlive the strategy.
struct RunContext {
  const RunShape& shape;
  Communicator& comm;
  Ledger& ledger;
  const StepScalars& scalars;  // lr is that of the coming step; global_norm_and_clip sets the rest
  Copies& copies;              // between this rank's device and its host
  Timeline& timeline;          // where it marks what it does, for the trace
  // Where transfers that are neither messages nor copies are recorded; null: nowhere.
  std::shared_ptr<CommRecord> record = {};
  std::int64_t first_step = 0;  // of this run; a restored state has been through so many steps
};

/// The group of ranks that differ from this one on these axes alone; null if it has one member. Collective.
inline std::unique_ptr<Communicator> group_of(const RunContext& context, std::initializer_list<Axis> axes) {
  const RankSet ranks = context.shape.mesh.group(context.shape.rank, axes);
  return ranks.count > 1 ? context.comm.split(ranks.first) : nullptr;
}

/// The results of one optimizer step, on the device. The host has not waited for them.
struct StepResult {
  // The sums over all ranks, [4] fp64: see StepSum in optim/grad_norm.h.Undefined: there is no result yet.
  at::Tensor sums;
  at::Tensor grad_norm;  // [] fp32: the global norm before clipping
  // The step of the result, if results come later; empty: the current step.
  std::optional<std::int64_t> of_step = {};
  std::optional<double> lr = {};  // if a step has several updates, the last one's; empty: the schedule's
};

/// A tensor that does not belong to the model, but that later results depend on.
struct InFlight {
  std::string name;  // unique over all ranks; without '@' and '['
  at::Tensor values;
};

struct ResumeFrom {
  std::string pending;            // pending() of the strategy that saved it
  std::function<void()> restore;  // overwrites the tensors of state() and in_flight()
  std::function<std::span<const Batch>()>
      // The micro-batches of the last step done; empty if the run no longer has these rows.
      last_batches;
};

/// Counters with their names: {"pieces updated", 340}.
using Counts = std::vector<std::pair<std::string, std::int64_t>>;

// [anchor: what-a-lesson-gives]
/// The training algorithm. A lesson derives from it; its type `Plans` tells what is known before a run.
class Strategy {
 public:
  virtual ~Strategy() = default;

  /// One optimizer step. May return with work in flight, which quiet() ends.
  virtual StepResult train_step(std::span<const Batch> micro_batches) = 0;
  /// Makes the state readable for checkpoints and evaluation: nothing is in flight, and the ranks agree on
  /// what they have published. Pending updates stay pending. Training then continues as if it had not been
  /// called.
  virtual void quiet() {}
  /// Ends a run: nothing stays pending. A quiet() after it waits for the work. Returns the results that were
  /// still to come, in order. Collective.
  virtual std::vector<StepResult> drain() { return {}; }
  /// A forward pass that adds the batch's loss and tokens to `sums`.
  virtual void forward_loss(const Batch& batch, at::Tensor& sums) = 0;
  /// The tensor [4] fp64 of sums to which train_step and evaluate add.
  [[nodiscard]] virtual at::Tensor& sums() = 0;
  /// What this rank holds between steps; layout() names it.
  [[nodiscard]] virtual std::vector<StateSlice> state() const = 0;
  [[nodiscard]] virtual const ParamLayout& layout() const = 0;

  /// Checks the strategy's own claims (for example equal replicas) after step `step`, counted from 0, outside
  /// the operations of a training step.
  virtual void after_step(std::int64_t /*step*/) {}
  /// How many times after_step() has compared replicas and found them equal to the bit.
  [[nodiscard]] virtual std::int64_t replica_checks() const { return 0; }
  /// A JSON object that describes pending work, besides its slices in state(). Its "put_off" says it in
  /// words. Collective; rank 0's is used.
  virtual std::string pending() { return "{}"; }
  /// This rank's tensors of pending work that do not belong to the model.
  virtual std::vector<InFlight> in_flight() { return {}; }
  /// Continues from a checkpoint. False if its pending work was another strategy's, and is dropped.
  virtual bool resume(const ResumeFrom& from) {
    from.restore();
    return from.pending == "{}";
  }
  /// Counters over all ranks, under the names that the record uses. Called at a run's end; collective.
  virtual Counts counts(Communicator& /*comm*/) { return {}; }
  /// On rank 0: when each rank did what. Called at a run's end; collective.
  virtual std::optional<Timetable> timetable(Communicator& /*comm*/) { return {}; }
};

/// A strategy that run_lesson can run.
template <class S>
concept Lesson = std::derived_from<S, Strategy> && std::derived_from<typename S::Plans, Plans> &&
    std::constructible_from<S, RunContext&, const typename S::Plans::Options&>;

/// The loss over the batches of all ranks, in nats per token, the same number on all of them. `next(round)`
/// gives this rank's batches, and an empty span on all ranks at the end. Collective.
template <class Next>
double evaluate_rounds(Strategy& strategy, Communicator& comm, Next next) {
  strategy.quiet();
  at::Tensor& sums = strategy.sums();
  sums.zero_();
  for (std::int64_t round = 0;; ++round) {
    const std::span<const Batch> batches = next(round);
    if (batches.empty()) break;
    for (const Batch& batch : batches) strategy.forward_loss(batch, sums);
    (void)sums[kTokens].item();  // waits, because the next round's tokens overwrite these
  }
  comm.all_reduce(sums, {OpPurpose::sums}).wait();
  return mean_loss(sums);
}

/// Ends a run: afterwards nothing is pending or in flight. Collective.
inline std::vector<StepResult> drain(Strategy& strategy) {
  std::vector<StepResult> results = strategy.drain();
  strategy.quiet();
  return results;
}

}  // namespace sc
