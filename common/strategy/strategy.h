// What a lesson's class is, and what it is handed. run_lesson drives any class that satisfies sc::Strategy.
#pragma once

#include <concepts>
#include <span>
#include <vector>

#include "common/comm/communicator.h"
#include "common/data/batch.h"
#include "common/memory/ledger.h"
#include "common/memory/plan.h"
#include "common/model/gpt.h"
#include "common/optim/adamw.h"
#include "common/optim/grad_norm.h"
#include "common/watch/comm_op.h"

namespace sc {

/// What every strategy is built from. The references outlive it.
struct RunContext {
  const RunShape& shape;
  Communicator& comm;
  Ledger& ledger;
  const StepScalars& scalars;  // lr is the coming step's; global_norm_and_clip fills in the rest
};

/// Device scalars of one optimizer step; nothing in it has been waited for by the host.
struct StepResult {
  at::Tensor sums;       // [4] fp64, summed over all ranks: see StepSum in optim/grad_norm.h
  at::Tensor grad_norm;  // [] fp32: the global norm before clipping
};

/// A named piece of a strategy's state on this rank.
struct StateSlice {
  Purpose purpose;  // parameters, master, momentum, variance; gradients: summed over ranks; workspace: the
                    // last local gradient (of x[0])
  int unit;
  Segment segment;
  Range range;        // elements of the unit's segment that `values` holds
  at::Tensor values;  // flat; writable
};

/// memory_plan and comm_plan need no device and no ranks.
///   train_step    one optimizer step; may return with work in flight, which settle() ends
///   forward_loss  a forward alone, which adds the batch's loss and tokens to `sums`
///   sums          [4] fp64: what train_step and evaluate add up
///   state         what this rank holds between steps; layout() names it
/// A strategy may also have after_step(step): it checks what the strategy itself claims (equal replicas, say)
/// after step `step` (they count from 0), outside the operations of a training step.
template <class S>
concept Strategy = requires(S strategy, RunContext& context, const RunShape& shape,
                            const typename S::Options& options, const Batch& batch,
                            std::span<const Batch> batches, at::Tensor& sums) {
  { S::memory_plan(shape, options) } -> std::same_as<MemoryPlan>;
  { S::comm_plan(shape, options) } -> std::same_as<CommPlan>;
  { strategy.train_step(batches) } -> std::same_as<StepResult>;
  {strategy.settle()};
  {strategy.forward_loss(batch, sums)};
  { strategy.sums() } -> std::same_as<at::Tensor&>;
  { strategy.state() } -> std::same_as<std::vector<StateSlice>>;
  { strategy.layout() } -> std::same_as<const ParamLayout&>;
  requires std::constructible_from<S, RunContext&, const typename S::Options&>;
};

/// Loss over the batches of all ranks, in nats a token: the same number on all of them. Collective.
template <class S>
double evaluate(S& strategy, Communicator& comm, std::span<const Batch> batches) {
  strategy.settle();
  at::Tensor& sums = strategy.sums();
  sums.zero_();
  for (const Batch& batch : batches) strategy.forward_loss(batch, sums);
  comm.all_reduce(sums).wait();
  return mean_loss(sums);
}

template <class S>
void after_step(S& strategy, std::int64_t step) {
  if constexpr (requires { strategy.after_step(step); }) strategy.after_step(step);
}

}  // namespace sc
