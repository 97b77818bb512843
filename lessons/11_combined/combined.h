// Lesson 11: combined parallelism. Ranks are a mesh of stages, data groups and tensor groups: lesson 07's lists, lesson 10's halves
// and lesson 02's slices, each along its own axis.
//   Source: Narayanan et al., arXiv:2104.04473.
#pragma once

#include <memory>
#include <vector>

#include "combined_plan.h"
#include "common/pipeline/messages.h"
#include "common/pipeline/pace.h"

namespace sc {

class Combined final : public Strategy {
 public:
  using Plans = CombinedPlans;
  using Options = Plans::Options;

  Combined(RunContext& context, const Options& options);
  StepResult train_step(std::span<const Batch> micro_batches) override;
  void forward_loss(const Batch& batch, at::Tensor& sums) override { messages_.forward_loss(batch, sums); }
  void after_step(std::int64_t step) override;
  [[nodiscard]] std::int64_t replica_checks() const override { return replica_checks_; }
  [[nodiscard]] at::Tensor& sums() override { return sums_; }
  [[nodiscard]] std::vector<StateSlice> state() const override {
    return state_of(stage_.last_local(), stage_.slices());
  }
  [[nodiscard]] const ParamLayout& layout() const override { return share_.layout; }

 private:
  void forward(const pipedream::Action& a, const Slot& slot, const Batch& batch);
  void backward(const pipedream::Action& a, const Slot& slot, const Batch& batch);
  void reduce_cut(int unit);
  void reduce_replicated();
  void reduce(std::size_t held);
  void add_tied();
  void global_norm();
  void step();

  RunContext& context_;
  Options options_;
  const Share share_;
  // Who shares this stage's matrices; who shares its micro-batches, with the same part of them; the other end. Or null.
  std::unique_ptr<Communicator> tensor_, data_, ends_;
  Stage stage_;
  Messages messages_;
  Pace pace_;
  at::Tensor sums_;              // [4] fp64: loss, tokens, sum of squares, overflow flag
  std::vector<Ticket> reduced_;  // by what the stage holds
  std::int64_t replica_checks_ = 0;
};

}  // namespace sc
