// Lesson 06: ZeRO-Infinity. Optimizer states lie on a disk and stream through a window of host memory: the host needs
// as much memory for them as the window has, whatever the model's size.
//   Source: Rajbhandari et al., ZeRO-Infinity, arXiv:2104.07857 (section 5.1.2, the infinity offload engine; 6.3).
#pragma once

#include "lessons/05_offload/offload.h"
#include "options.h"

namespace sc {

class InfinityPlans final : public PlansWith<InfinityPlans, InfinityOptions> {
 public:
  using PlansWith::PlansWith;
  [[nodiscard]] MemoryPlan memory_plan(const RunShape& shape) const override;
  [[nodiscard]] CommPlan comm_plan(const RunShape& shape) const override;
  [[nodiscard]] Facts facts(const RunShape& shape) const override;
  [[nodiscard]] std::string predict(const RunShape& shape) const override;

 private:
  [[nodiscard]] FieldTable<Options> table() const override;
};

/// Lesson 05 with another place for the states.
class Infinity final : public Offload {
 public:
  using Plans = InfinityPlans;
  using Options = Plans::Options;

  Infinity(RunContext& context, const Options& options);
  std::optional<Timetable> timetable(Communicator& comm) override;
};

}  // namespace sc
