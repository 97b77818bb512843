// What a lesson's class is, and what it is handed. run_lesson drives any class that satisfies sc::Strategy.
#pragma once

#include <concepts>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/comm/communicator.h"
#include "common/comm/copies/copies.h"
#include "common/data/batch.h"
#include "common/memory/ledger.h"
#include "common/memory/plan.h"
#include "common/model/gpt.h"
#include "common/optim/adamw.h"
#include "common/optim/grad_norm.h"
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

/// What the ranks of a run are to each other.
struct Division {
  std::int64_t stages = 1;         // of a pipeline; they divide the world
  std::int64_t virtual_ranks = 1;  // that each rank stands for where micro-batches are dealt
};

/// What a rank on the CPU may have that is slower than it is.
struct SlowLinks {
  double message_ms = 0;  // messages between ranks arrive so much later
  double copy_mbps =
      0;  // copies between device and host: at most so many 10^6 bytes a second each way; 0: no limit
};

/// memory_plan and comm_plan need no device and no ranks.
///   train_step    one optimizer step; may return with work in flight, which quiet() ends
///   quiet         nothing is in flight any more, and the ranks agree on what they have published; what an
///                 update has put off stays put off. Training goes on as if it had not been called
///   forward_loss  a forward alone, which adds the batch's loss and tokens to `sums`
///   sums          [4] fp64: what train_step and evaluate add up
///   state         what this rank holds between steps; layout() names it
/// A strategy may also have
///   updates_a_step(shape, options)  -> std::int64_t, where warm-up and decay count several updates a step. Static
///   drain()           -> std::vector<StepResult>: applies what was put off, at the end of a run, and returns
///                     the results that were still to come, in order
///   division(options, world)  -> Division; without it every rank has micro-batches of its own
///   predict(shape, options)   -> std::string: lines under the plan, of what else is known before a run
///   slow_links(options)       -> SlowLinks, where a CPU shows what a slow link costs
///   pending()         -> std::string, a JSON object: what is put off, beside its slices in state(); "{}": nothing.
///                     Its "put_off" says so in words. Collective; rank 0's counts
///   in_flight()       -> std::vector<InFlight>: of that, this rank's tensors that are not the model's
///   resume(from)      -> bool: goes on from a checkpoint. False: what was put off is none of its own, and is dropped
///   pending_bytes(shape, options)  -> Bytes of that: of in_flight(), and of what state() marks as pending. Static
///   no_checkpoint(options)    -> std::string: why its state between steps cannot be saved; empty: it can. Static
///   timetable(comm)   -> std::optional<Timetable>, on rank 0: when the ranks did what. At a run's end; collective
///   kNoGraph          why no CUDA graph can hold one step; without it a graph holds all of it
///   kNoEvaluation     why it evaluates at a run's end alone; without it --eval-every does in between
///   kSteadyFrom       the first step whose operations comm_plan says: the second one at most, which is checked.
///                     Without it every step's are
///   after_step(step)  checks what the strategy itself claims (equal replicas, say) after step `step` (they
///                     count from 0), outside the operations of a training step
template <class S>
concept Strategy = requires(S strategy, RunContext& context, const RunShape& shape,
                            const typename S::Options& options, const Batch& batch,
                            std::span<const Batch> batches, at::Tensor& sums) {
  { S::memory_plan(shape, options) } -> std::same_as<MemoryPlan>;
  { S::comm_plan(shape, options) } -> std::same_as<CommPlan>;
  { strategy.train_step(batches) } -> std::same_as<StepResult>;
  {strategy.quiet()};
  {strategy.forward_loss(batch, sums)};
  { strategy.sums() } -> std::same_as<at::Tensor&>;
  { strategy.state() } -> std::same_as<std::vector<StateSlice>>;
  { strategy.layout() } -> std::same_as<const ParamLayout&>;
  requires std::constructible_from<S, RunContext&, const typename S::Options&>;
};

/// Loss over the batches of all ranks, in nats a token: the same number on all of them. Collective.
template <class S>
double evaluate(S& strategy, Communicator& comm, std::span<const Batch> batches) {
  strategy.quiet();
  at::Tensor& sums = strategy.sums();
  sums.zero_();
  for (const Batch& batch : batches) strategy.forward_loss(batch, sums);
  comm.all_reduce(sums).wait();
  return mean_loss(sums);
}

/// The same of any number of batches: `next(round)` gives this rank's, an empty span on all ranks at the end.
template <class S, class Next>
double evaluate_rounds(S& strategy, Communicator& comm, Next next) {
  strategy.quiet();
  at::Tensor& sums = strategy.sums();
  sums.zero_();
  for (std::int64_t round = 0;; ++round) {
    const std::span<const Batch> batches = next(round);
    if (batches.empty()) break;
    for (const Batch& batch : batches) strategy.forward_loss(batch, sums);
    (void)sums[kTokens].item();  // the next round's tokens go where these were
  }
  comm.all_reduce(sums).wait();
  return mean_loss(sums);
}

/// The end of a run: nothing is put off or in flight after it. Collective.
template <class S>
std::vector<StepResult> drain(S& strategy) {
  std::vector<StepResult> results;
  if constexpr (requires { strategy.drain(); }) results = strategy.drain();
  strategy.quiet();
  return results;
}

template <class S>
Division division_of(const typename S::Options& options, WorldSize world) {
  if constexpr (requires { S::division(options, world); }) return S::division(options, world);
  return {};
}

/// Empty: a graph may hold one step.
template <class S>
std::string no_graph_reason() {
  if constexpr (requires { S::kNoGraph; }) return S::kNoGraph;
  return "";
}

/// Empty: it evaluates between steps, too.
template <class S>
std::string no_evaluation_reason() {
  if constexpr (requires { S::kNoEvaluation; }) return S::kNoEvaluation;
  return "";
}

/// Empty: it saves and resumes.
template <class S>
std::string no_checkpoint_reason(const typename S::Options& options) {
  if constexpr (requires { S::no_checkpoint(options); }) return S::no_checkpoint(options);
  return "";
}

template <class S>
std::string predict(const RunShape& shape, const typename S::Options& options) {
  if constexpr (requires { S::predict(shape, options); }) return S::predict(shape, options);
  return "";
}

template <class S>
SlowLinks slow_links_of(const typename S::Options& options) {
  if constexpr (requires { S::slow_links(options); }) return S::slow_links(options);
  return {};
}

template <class S>
Bytes pending_bytes_of(const RunShape& shape, const typename S::Options& options) {
  if constexpr (requires { S::pending_bytes(shape, options); }) return S::pending_bytes(shape, options);
  return Bytes(0);
}

template <class S>
std::string pending_of(S& strategy) {
  if constexpr (requires { strategy.pending(); }) return strategy.pending();
  return "{}";
}

/// What the learning rate's schedule counts.
template <class S>
std::int64_t updates_a_step_of(const RunShape& shape, const typename S::Options& options) {
  if constexpr (requires { S::updates_a_step(shape, options); }) return S::updates_a_step(shape, options);
  return 1;
}

template <class S>
std::vector<InFlight> in_flight_of(S& strategy) {
  if constexpr (requires { strategy.in_flight(); }) return strategy.in_flight();
  return {};
}

template <class S>
bool resume(S& strategy, const ResumeFrom& from) {
  if constexpr (requires { strategy.resume(from); }) return strategy.resume(from);
  from.restore();
  return from.pending == "{}";
}

template <class S>
std::optional<Timetable> timetable_of(S& strategy, Communicator& comm) {
  if constexpr (requires { strategy.timetable(comm); }) return strategy.timetable(comm);
  return {};
}

template <class S>
void after_step(S& strategy, std::int64_t step) {
  if constexpr (requires { strategy.after_step(step); }) strategy.after_step(step);
}

}  // namespace sc
