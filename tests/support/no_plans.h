// Plans that say nothing, for strategies that exist only in tests.
#pragma once

#include "common/strategy/plans.h"

namespace sc::test {

template <class O>
class NoPlans final : public PlansWith<NoPlans<O>, O> {
 public:
  using PlansWith<NoPlans, O>::PlansWith;
  [[nodiscard]] MemoryPlan memory_plan(const RunShape& /*shape*/) const override { return {}; }
  [[nodiscard]] CommPlan comm_plan(const RunShape& /*shape*/) const override { return {}; }

 private:
  [[nodiscard]] FieldTable<O> table() const override { return {}; }
};

}  // namespace sc::test
