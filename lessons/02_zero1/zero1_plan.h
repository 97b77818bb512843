// What lesson 02 holds and sends, known before a run, and its settings. No torch.
#pragma once

#include "common/model/param_layout.h"
#include "common/strategy/plans.h"

namespace sc {

struct Zero1Options {
  bool overlap = true;  // reduce while backward runs, publish while forward runs; off: wait for each at once
};

class Zero1Plans final : public PlansWith<Zero1Plans, Zero1Options> {
 public:
  using PlansWith::PlansWith;
  [[nodiscard]] MemoryPlan memory_plan(const RunShape& shape) const override;
  [[nodiscard]] CommPlan comm_plan(const RunShape& shape) const override;
  [[nodiscard]] Contents contents(const RunShape& shape) const override;

 private:
  [[nodiscard]] FieldTable<Options> table() const override;
};

}  // namespace sc
