// The orders in which lesson 00 can add, as settings, and what it holds for each of them. No torch.
#pragma once

#include "common/model/context_plan.h"
#include "common/model/part_plan.h"
#include "common/strategy/plans.h"

namespace sc {

/// When the gradients of several ranks are summed: once a step, or after every micro-batch.
enum class ReduceEvery { step, micro_batch };
/// Where the head's and the embedding's part of wte's gradient meet: in every micro-batch, or at a step's
/// end.
enum class TiedSum { joint, split };

struct ReduceOrder {
  /// Micro-batches are dealt to so many ranks as a real world would deal them.
  std::int64_t virtual_ranks = 1;
  ReduceEvery reduce_every = ReduceEvery::step;
  TiedSum tied_sum = TiedSum::joint;
  /// With reduce_every=micro_batch so many groups of ranks sum after every micro-batch, and meet once a step.
  std::int64_t groups = 1;
  /// Products are computed in parts, as so many ranks that share every matrix would.
  std::int64_t tensor_ranks = 1;
  /// Those compute so many micro-batches together: the heads' parts of wte's gradient come first.
  std::int64_t lanes = 1;
  /// Which tokens each of them has between the halves of a block.
  TokenShare tokens = TokenShare::split;
  /// Attention is computed pair by pair, as so many ranks that share each row's tokens would (lesson 12).
  std::int64_t context_ranks = 1;
  Parts parts = Parts::zigzag;
  Exchange exchange = Exchange::ring;
  bool operator==(const ReduceOrder&) const = default;
};

/// How many ranks cut a vector into slices: those of one group.
WorldSize ranks_of(const ReduceOrder& order);
/// Whether the head's part of wte's gradient is a vector of its own.
bool has_head_gradient(const RunShape& shape, const ReduceOrder& order);
/// How many whole gradients are held: the sum itself; those of context ranks (c > 1); one of the virtual rank
/// that computes (W > 1); the sum over ranks of one micro-batch (micro_batch); the sum of the group that
/// computes (groups > 1).
int gradients_held(const ReduceOrder& order);
/// The layout of what one tensor rank has, and the run's shape for it, where everything is kept for backward.
ParamLayout layout_of_part(const RunShape& shape, const ReduceOrder& order, int rank);
RunShape shape_of_parts(const RunShape& shape);
/// The vectors of a tensor rank: its parameters and, for each gradient, all units' and then the head's own
/// part of this rank's rows of wte, where there is one.
void plan_part(const RunShape& shape, const ReduceOrder& order, int rank, MemoryPlan& plan);

class ReferenceOrderPlans final : public PlansWith<ReferenceOrderPlans, ReduceOrder> {
 public:
  using PlansWith::PlansWith;
  [[nodiscard]] MemoryPlan memory_plan(const RunShape& shape) const override;
  [[nodiscard]] CommPlan comm_plan(const RunShape& shape) const override;
  [[nodiscard]] std::int64_t virtual_ranks() const override { return options_.virtual_ranks; }
  [[nodiscard]] Facts facts(const RunShape& shape) const override;

 private:
  [[nodiscard]] FieldTable<Options> table() const override;
};

}  // namespace sc
