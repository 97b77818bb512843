// The plan of lesson 04, which says before a run what it will hold and send, and the lesson's settings. No
// torch.
#pragma once

#include "common/model/param_layout.h"
#include "common/strategy/plans.h"

namespace sc {

struct Zero3Options {
  /// The number of units whose gathers are issued ahead of the unit that computes.
  std::int64_t prefetch = 1;
  /// If off, every block has a buffer of its own, and is gathered once per step.
  bool reshard_after_forward = true;
  /// The number of elements below which a tensor stays whole on every rank.
  std::int64_t persist_below = 0;
  /// The number of neighbours that share each vector out; 0 means all ranks.
  std::int64_t shard_ranks = 0;
};

class Zero3Plans final : public PlansWith<Zero3Plans, Zero3Options> {
 public:
  using PlansWith::PlansWith;
  [[nodiscard]] MemoryPlan memory_plan(const RunShape& shape) const override;
  [[nodiscard]] CommPlan comm_plan(const RunShape& shape) const override;
  [[nodiscard]] Contents contents(const RunShape& shape) const override;
  [[nodiscard]] Facts facts(const RunShape& shape) const override;

 private:
  [[nodiscard]] FieldTable<Options> table() const override;
};

}  // namespace sc
