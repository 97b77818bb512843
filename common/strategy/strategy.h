// What a lesson's class is, and what it is handed.
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

/// What every strategy is built from. The references outlive it.
struct RunContext {
  const RunShape& shape;
  Communicator& comm;
  Ledger& ledger;
  const StepScalars& scalars;  // lr is the coming step's; global_norm_and_clip fills in the rest
  Copies& copies;              // between this rank's device and its host
  Timeline& timeline;          // marks of what it does, for the trace
  std::shared_ptr<CommRecord> record =
      {};                       // for transfers that are neither messages nor copies; null: nobody asks
  std::int64_t first_step = 0;  // of the run: what is restored has been through so many
};

/// The ranks that differ from this one on these axes alone; null: this one alone does. Collective.
inline std::unique_ptr<Communicator> group_of(const RunContext& context, std::initializer_list<Axis> axes) {
  const RankSet ranks = context.shape.mesh.group(context.shape.rank, axes);
  return ranks.count > 1 ? context.comm.split(ranks.first) : nullptr;
}

/// Device scalars of one optimizer step; nothing in it has been waited for by the host.
struct StepResult {
  at::Tensor sums;       // [4] fp64, summed over all ranks: see StepSum in optim/grad_norm.h. Undefined: no
                         // step's result is known yet
  at::Tensor grad_norm;  // [] fp32: the global norm before clipping
  std::optional<std::int64_t> of_step = {};  // where results come later; empty: of the step that returns it
  std::optional<double> lr = {};  // where a step has several updates: the last one's; empty: the schedule's
};

/// A tensor that is not the model's and that what comes next depends on.
struct InFlight {
  std::string name;  // no other rank has one of that name; without '@' and '['
  at::Tensor values;
};

/// What a run goes on from.
struct ResumeFrom {
  std::string pending;            // what the strategy that saved it had to say
  std::function<void()> restore;  // overwrites what state() and in_flight() show then
  std::function<std::span<const Batch>()>
      last_batches;  // of the last step that is done; empty: the run has no such rows any more
};

/// How many of what: {"pieces updated", 340}.
using Counts = std::vector<std::pair<std::string, std::int64_t>>;

/// What trains. A lesson derives from it, and names with `using Plans` what is known of it before a run.
class Strategy {
 public:
  virtual ~Strategy() = default;

  /// One optimizer step; may return with work in flight, which quiet() ends.
  virtual StepResult train_step(std::span<const Batch> micro_batches) = 0;
  /// What a checkpoint or an evaluation reads is there, and the ranks agree on what they have published; what
  /// an update has put off stays put off. Training goes on as if it had not been called.
  virtual void quiet() {}
  /// The end of a run: from here on nothing is put off; the quiet() behind it waits for what was. Returns the
  /// results that were still to come, in order. Collective.
  virtual std::vector<StepResult> drain() { return {}; }
  /// A forward alone, which adds the batch's loss and tokens to `sums`.
  virtual void forward_loss(const Batch& batch, at::Tensor& sums) = 0;
  /// [4] fp64: what train_step and evaluate add up.
  [[nodiscard]] virtual at::Tensor& sums() = 0;
  /// What this rank holds between steps; layout() names it.
  [[nodiscard]] virtual std::vector<StateSlice> state() const = 0;
  [[nodiscard]] virtual const ParamLayout& layout() const = 0;

  /// Checks what the strategy itself claims (equal replicas, say) after a step of the run, which count from
  /// 0, outside the operations of a training step.
  virtual void after_step(std::int64_t /*step*/) {}
  /// How often after_step() has compared replicas, and found them equal to the bit.
  [[nodiscard]] virtual std::int64_t replica_checks() const { return 0; }
  /// A JSON object: what is put off, beside its slices in state(). Its "put_off" says so in words.
  /// Collective; rank 0's counts.
  virtual std::string pending() { return "{}"; }
  /// Of that, this rank's tensors that are not the model's.
  virtual std::vector<InFlight> in_flight() { return {}; }
  /// Goes on from a checkpoint. False: what was put off is none of its own, and is dropped.
  virtual bool resume(const ResumeFrom& from) {
    from.restore();
    return from.pending == "{}";
  }
  /// What it has counted, of all ranks together, in words; the record names it so. At a run's end;
  /// collective.
  virtual Counts counts(Communicator& /*comm*/) { return {}; }
  /// On rank 0: when the ranks did what. At a run's end; collective.
  virtual std::optional<Timetable> timetable(Communicator& /*comm*/) { return {}; }
};

/// What run_lesson runs.
template <class S>
concept Lesson = std::derived_from<S, Strategy> && std::derived_from<typename S::Plans, Plans> &&
    std::constructible_from<S, RunContext&, const typename S::Plans::Options&>;

/// Loss over the batches of all ranks, in nats a token: the same number on all of them. `next(round)` gives
/// this rank's, an empty span on all ranks at the end. Collective.
template <class Next>
double evaluate_rounds(Strategy& strategy, Communicator& comm, Next next) {
  strategy.quiet();
  at::Tensor& sums = strategy.sums();
  sums.zero_();
  for (std::int64_t round = 0;; ++round) {
    const std::span<const Batch> batches = next(round);
    if (batches.empty()) break;
    for (const Batch& batch : batches) strategy.forward_loss(batch, sums);
    (void)sums[kTokens].item();  // the next round's tokens go where these were
  }
  comm.all_reduce(sums, {OpPurpose::sums}).wait();
  return mean_loss(sums);
}

/// The end of a run: nothing is put off or in flight after it. Collective.
inline std::vector<StepResult> drain(Strategy& strategy) {
  std::vector<StepResult> results = strategy.drain();
  strategy.quiet();
  return results;
}

}  // namespace sc
