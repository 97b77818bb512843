// What lesson 05 holds and sends, known before a run, and its settings. No torch.
#pragma once

#include "common/offload/host_plan.h"
#include "common/strategy/plans.h"

namespace sc {

struct OffloadOptions : HostOptions {
  /// If off, every copy and every update is waited for at once.
  bool overlap = true;
};

class OffloadPlans final : public PlansWith<OffloadPlans, OffloadOptions> {
 public:
  using PlansWith::PlansWith;
  [[nodiscard]] MemoryPlan memory_plan(const RunShape& shape) const override;
  [[nodiscard]] CommPlan comm_plan(const RunShape& shape) const override;
  [[nodiscard]] Contents contents(const RunShape& shape) const override;
  [[nodiscard]] Facts facts(const RunShape& shape) const override;
  [[nodiscard]] std::string predict(const RunShape& shape) const override;

 private:
  [[nodiscard]] FieldTable<Options> table() const override;
};

}  // namespace sc
