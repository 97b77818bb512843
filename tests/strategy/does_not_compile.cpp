// tests/strategy/CMakeLists.txt compiles this file once without a case, which must succeed, and once with
// each case, which must fail.
#include "common/strategy/strategy.h"

namespace sc {

struct MyOptions {};

class MyPlans : public PlansWith<MyPlans, MyOptions> {
 public:
  using PlansWith::PlansWith;
  [[nodiscard]] MemoryPlan memory_plan(const RunShape& /*shape*/) const override { return {}; }
  [[nodiscard]] CommPlan comm_plan(const RunShape& /*shape*/) const override { return {}; }
#if defined(CASE_facts_of_other_arguments)
  [[nodiscard]] Facts facts(WorldSize /*world*/) const override { return {}; }
#else
  [[nodiscard]] Facts facts(const RunShape& /*shape*/) const override { return {}; }
#endif

 private:
  [[nodiscard]] FieldTable<MyOptions> table() const override { return {}; }
};

class MyStrategy : public Strategy {
 public:
#if !defined(CASE_no_plans)
  using Plans = MyPlans;
#endif
  MyStrategy(RunContext& /*context*/, const MyOptions& /*options*/) {}
  StepResult train_step(std::span<const Batch> /*micro_batches*/) override { return {}; }
  void forward_loss(const Batch& /*batch*/, at::Tensor& /*sums*/) override {}
  at::Tensor& sums() override { return sums_; }
  [[nodiscard]] std::vector<StateSlice> state() const override { return {}; }
  [[nodiscard]] const ParamLayout& layout() const override { return layout_; }
#if defined(CASE_misspelt_drain)
  std::vector<StepResult> drian() override { return {}; }
#else
  std::vector<StepResult> drain() override { return {}; }
#endif
#if defined(CASE_resume_of_other_arguments)
  bool resume(ResumeFrom& /*from*/) override { return true; }
#else
  bool resume(const ResumeFrom& /*from*/) override { return true; }
#endif

 private:
  at::Tensor sums_;
  ParamLayout layout_{GptConfig{}, WorldSize{1}};
};

static_assert(Lesson<MyStrategy>);

}  // namespace sc
