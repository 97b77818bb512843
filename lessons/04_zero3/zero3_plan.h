// What lesson 04 holds and sends, known before a run; and its settings. No torch.
#pragma once

#include "common/model/param_layout.h"
#include "common/strategy/plans.h"

namespace sc {

struct Zero3Options {
  std::int64_t prefetch = 1;          // units whose gather is issued ahead of the one that computes
  bool reshard_after_forward = true;  // off: every block has a buffer, and is gathered once a step
  std::int64_t persist_below = 0;     // tensors of fewer elements stay whole on every rank
  std::int64_t shard_ranks = 0;       // neighbours that share each vector out; 0: all ranks
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
