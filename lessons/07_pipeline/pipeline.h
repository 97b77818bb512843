// Lesson 07: pipeline parallelism. Each rank holds a few blocks; micro-batches flow through the stages, and
// every stage executes its list of a schedule that pipedream has proven, whatever schedule that is.
//   Source: Huang et al., GPipe, arXiv:1811.06965; Narayanan et al., arXiv:1806.03377 and 2104.04473 (1F1B,
//   interleaved); Qi et al., arXiv:2401.10241 (ZB-H1).
#pragma once

#include <memory>
#include <vector>

#include "common/pipeline/messages.h"
#include "common/pipeline/pace.h"
#include "pipeline_plan.h"

namespace sc {

class Pipeline final : public Strategy {
 public:
  using Plans = PipelinePlans;
  using Options = Plans::Options;

  Pipeline(RunContext& context, const Options& options);
  StepResult train_step(std::span<const Batch> micro_batches) override;
  void forward_loss(const Batch& batch, at::Tensor& sums) override { messages_.forward_loss(batch, sums); }
  void after_step(std::int64_t step) override;
  [[nodiscard]] std::int64_t replica_checks() const override { return replica_checks_; }
  std::optional<Timetable> timetable(Communicator& comm) override;
  [[nodiscard]] at::Tensor& sums() override { return sums_; }
  [[nodiscard]] std::vector<StateSlice> state() const override {
    return state_of(stage_.last_local(), stage_.slices());
  }
  [[nodiscard]] const ParamLayout& layout() const override { return share_.layout; }

 private:
  void forward(const pipedream::Action& a, const Slot& slot, const Batch& batch);
  void backward(const pipedream::Action& a, const Slot& slot, const Batch& batch);
  void reduce_grads(int unit);
  void wait_reduced();
  void add_tied();
  void global_norm();
  void step(const pipedream::Action& action);
  void step_unit(OwnedSlice& slice);
  void publish_params();

  RunContext& context_;
  Options options_;
  const Share share_;
  Stage stage_;
  Messages messages_;
  Pace pace_;
  at::Tensor sums_;  // [4] fp64: loss, tokens, sum of squares, overflow flag
  std::unique_ptr<Communicator> replicas_,
      ends_;                                 // of this stage; with the tied matrix's other copy. Or null
  std::vector<Ticket> reduced_, published_;  // by what the stage holds
  std::int64_t replica_checks_ = 0;
};

}  // namespace sc
