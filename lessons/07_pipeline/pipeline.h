// Lesson 07: pipeline parallelism. Each rank holds a few blocks; micro-batches flow through the stages, and
// every stage executes its list of a schedule that pipedream has proven, whatever schedule that is.
//   Source: Huang et al., GPipe, arXiv:1811.06965; Narayanan et al., arXiv:1806.03377 and 2104.04473 (1F1B,
//   interleaved); Qi et al., arXiv:2401.10241 (ZB-H1).
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "common/pipeline/messages.h"
#include "common/pipeline/pace.h"
#include "pipeline_plan.h"

namespace sc {

/// What a pipeline is built from.
struct PipelineParts {
  Share share;
  /// The replicas of this stage, and the two stages that hold the tied matrix; null where this rank is in no
  /// such group.
  std::unique_ptr<Communicator> replicas = {}, ends = {};
  /// Makes the stage's layers. Where it is empty the stage has whole matrices (gpt_layers).
  std::function<std::unique_ptr<Layers>(const Share&)> layers = {};
};
/// A share with the groups that its rank is in. Collective.
PipelineParts parts_of(const RunContext& context, Share share);

class Pipeline : public Strategy {
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

 protected:
  /// For a lesson that adds an axis to stages and replicas (11), which replaces the virtual functions below.
  Pipeline(RunContext& context, const Options& options, PipelineParts parts);
  /// Starts the sum of a complete gradient over this stage's replicas.
  void reduce(Stage::Held& held);
  /// Waits until every sum over replicas has arrived.
  virtual void wait_reduced();
  /// Whether this rank's slice of `held` counts in the norm, for which every element counts once.
  [[nodiscard]] virtual bool squares(const Stage::Held& held) const { return !held.copy; }
  /// Compares what other ranks hold as well. Returns whether there is anything of that kind.
  virtual bool compare_copies(std::int64_t step);

  RunContext& context_;
  const Share share_;
  /// Null as in PipelineParts. Declared before the stage, whose tickets belong to these groups.
  const std::unique_ptr<Communicator> replicas_, ends_;
  Stage stage_;

 private:
  void forward(const pipedream::Action& a, const Slot& slot, const Batch& batch);
  void backward(const pipedream::Action& a, const Slot& slot, const Batch& batch);
  void reduce_grads(int unit);
  void update(const pipedream::Action& a);
  void add_tied();
  void global_norm();
  void publish_params();

  Options options_;
  Messages messages_;
  Pace pace_;
  at::Tensor sums_;  // [4] fp64: loss, tokens, sum of squares, overflow flag
  std::int64_t replica_checks_ = 0;
};

}  // namespace sc
