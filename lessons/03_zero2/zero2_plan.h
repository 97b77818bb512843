// What lesson 03 holds and sends, known before a run, and its settings. No torch.
#pragma once

#include "common/model/param_layout.h"
#include "common/strategy/plans.h"

namespace sc {

struct Zero2Options {
  std::int64_t bucket = 0;  // elements of gradient that one reduce-scatter carries; 0: a unit
  bool overlap = true;  // reduce while backward runs, publish while forward runs; off: wait for each at once
};

class Zero2Plans final : public PlansWith<Zero2Plans, Zero2Options> {
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
