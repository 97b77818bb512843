// What a lesson's class is, and what it is handed. run_lesson drives any class that satisfies sc::Strategy.
#pragma once

#include <concepts>
#include <span>

#include "common/comm/communicator.h"
#include "common/data/batch.h"
#include "common/memory/ledger.h"
#include "common/memory/plan.h"
#include "common/model/gpt.h"
#include "common/optim/adamw.h"
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
  at::Tensor sums;       // [4] fp64, summed over all ranks: loss sum, tokens, sum of squares, overflow flag
                         // (optim/grad_norm.h)
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

class StateVisitor {
 public:
  virtual ~StateVisitor() = default;
  virtual void visit(const StateSlice& slice) = 0;
};

/// layout() names what visit_state's slices hold. memory_plan and comm_plan need no device and no ranks.
/// train_step may return with work in flight; settle() ends it. after_step checks what the strategy itself
/// claims (equal replicas, say) after step `step` (they count from 0), outside the operations of a training
/// step.
template <class S>
concept Strategy = requires(S strategy, RunContext& context, const RunShape& shape,
                            const typename S::Options& options, std::span<const Batch> batches,
                            StateVisitor& visitor, std::int64_t step) {
  { S::memory_plan(shape, options) } -> std::same_as<MemoryPlan>;
  { S::comm_plan(shape, options) } -> std::same_as<CommPlan>;
  { strategy.train_step(batches) } -> std::same_as<StepResult>;
  {strategy.settle()};
  { strategy.evaluate(batches) } -> std::same_as<double>;
  {strategy.visit_state(visitor)};
  {strategy.after_step(step)};
  { strategy.layout() } -> std::same_as<const ParamLayout&>;
  requires std::constructible_from<S, RunContext&, const typename S::Options&>;
};

}  // namespace sc
