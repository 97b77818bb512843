// Lesson 07: pipeline parallelism. Each rank holds a few blocks; micro-batches flow through the stages, and
// every stage executes its list of a schedule that pipedream has proven, whatever schedule that is.
//   Source: Huang et al., GPipe, arXiv:1811.06965; Narayanan et al., arXiv:1806.03377 and 2104.04473 (1F1B,
//   interleaved); Qi et al., arXiv:2401.10241 (ZB-H1).
#pragma once

#include <memory>
#include <vector>

#include "common/config/field_table.h"
#include "executor.h"

namespace sc {

class PipelinePlans final : public PlansWith<PipelinePlans, PipelineOptions> {
 public:
  using PlansWith::PlansWith;
  [[nodiscard]] MemoryPlan memory_plan(const RunShape& shape) const override;
  [[nodiscard]] CommPlan comm_plan(const RunShape& shape) const override;
  [[nodiscard]] Division division(WorldSize world) const override;
  [[nodiscard]] Facts facts(const RunShape& shape) const override;
  [[nodiscard]] std::string predict(const RunShape& shape) const override;

 private:
  [[nodiscard]] FieldTable<Options> table() const override;
};

class Pipeline final : public Strategy {
 public:
  using Plans = PipelinePlans;
  using Options = Plans::Options;

  Pipeline(RunContext& context, const Options& options);
  StepResult train_step(std::span<const Batch> micro_batches) override;
  void forward_loss(const Batch& batch, at::Tensor& sums) override { executor_.forward_loss(batch, 0, sums); }
  void after_step(std::int64_t step) override;
  std::optional<Timetable> timetable(Communicator& comm) override;
  [[nodiscard]] at::Tensor& sums() override { return sums_; }
  [[nodiscard]] std::vector<StateSlice> state() const override {
    return state_of(stage_.last_local(), stage_.slices());
  }
  [[nodiscard]] const ParamLayout& layout() const override { return share_.layout; }

 private:
  void perform(const pipedream::Action& action, const Slot& slot, std::span<const Batch> micro_batches);
  void reduce_grads(int unit, bool last_micro_batch);
  void wait_reduced();
  void add_tied();
  void global_norm();
  void step();
  void step_unit(OwnedSlice& slice);
  void publish_params();
  void compare(Communicator& group, const Stage::Held& held, std::int64_t elements, std::int64_t step);

  RunContext& context_;
  Options options_;
  const Share share_;
  Executor executor_;
  Stage& stage_;
  at::Tensor sums_;  // [4] fp64: loss, tokens, sum of squares, overflow flag
  std::unique_ptr<Communicator> replicas_,
      ends_;                                 // of this stage; with the tied matrix's other copy. Or null
  std::vector<Ticket> reduced_, published_;  // by what the stage holds
};

}  // namespace sc
