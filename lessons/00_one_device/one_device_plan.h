// What lesson 00 holds and sends, known before a run; and its settings. No torch.
#pragma once

#include "common/model/context_plan.h"
#include "common/model/part_plan.h"
#include "common/strategy/plans.h"

namespace sc {

enum class ReduceEvery { step, micro_batch };
enum class TiedSum { joint, split };

struct ReduceOrder {
  std::int64_t virtual_ranks = 1;  // W: the micro-batches are dealt to W ranks as a real world of W would
  ReduceEvery reduce_every = ReduceEvery::step;  // sum over ranks once a step, or after every micro-batch
  TiedSum tied_sum =
      TiedSum::joint;  // split: the head's and the embedding's part of wte's gradient meet at the end
  std::int64_t groups =
      1;  // with micro_batch: so many groups of ranks sum after every micro-batch, and meet once a step
  std::int64_t tensor_ranks = 1;  // t: products in parts, as t ranks that share every matrix would
  std::int64_t lanes =
      1;  // micro-batches that those compute together: the heads' parts of wte's gradient come first
  TokenShare tokens = TokenShare::split;  // of what lies between those
  std::int64_t context_ranks = 1;  // c: attention pair by pair, as c ranks that share a row's tokens would
  Parts parts = Parts::zigzag;     // of a row, for those
  Exchange exchange = Exchange::ring;  // of their keys and values
  bool operator==(const ReduceOrder&) const = default;
};

/// Ranks that share a vector out, a slice each.
WorldSize ranks_of(const ReduceOrder& order);
/// Whether the head's part of wte's gradient is a vector of its own.
bool has_head_gradient(const RunShape& shape, const ReduceOrder& order);
/// Whole gradients: the sum itself; those of context ranks (c > 1); the virtual rank that computes now (W >
/// 1); the sum over ranks of one micro-batch (micro_batch); the sum of the group that computes now (groups >
/// 1).
int gradients_held(const ReduceOrder& order);
/// Each tensor rank's layout, and the sizes of what it computes; everything is kept for backward.
ParamLayout layout_of_part(const RunShape& shape, const ReduceOrder& order, int rank);
RunShape shape_of_parts(const RunShape& shape);
/// Vectors of a part: its parameters, and of each gradient all units', then the head's own part of its rows
/// of wte where it has one.
void plan_part(const RunShape& shape, const ReduceOrder& order, int rank, MemoryPlan& plan);

class ReferenceOrderPlans final : public PlansWith<ReferenceOrderPlans, ReduceOrder> {
 public:
  using PlansWith::PlansWith;
  [[nodiscard]] MemoryPlan memory_plan(const RunShape& shape) const override;
  [[nodiscard]] CommPlan comm_plan(const RunShape& shape) const override;
  [[nodiscard]] std::int64_t virtual_ranks() const override { return options_.virtual_ranks; }

 private:
  [[nodiscard]] FieldTable<Options> table() const override;
};

}  // namespace sc
