// Lesson 11: combined parallelism. Ranks are a mesh of stages, data, context and tensor groups: lesson 07's
// lists, lesson 12's tokens, lesson 10's halves and lesson 02's slices, each along its own axis.
//   Source: Narayanan et al., arXiv:2104.04473; Llama 3, arXiv:2407.21783, section 3.3.2.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "combined_plan.h"
#include "lessons/07_pipeline/pipeline.h"
#include "lessons/12_context_parallel/context_attention.h"

namespace sc {

/// Two groups of ranks: those that share a stage's matrices, and those that share the tokens of its rows. A
/// Communicator is null where its axis has one rank. A base of Combined, because these must exist before the
/// stage and outlive it.
struct InnerAxes {
  explicit InnerAxes(const RunContext& context);
  [[nodiscard]] std::unique_ptr<Layers> layers(const Share& share, const CombinedOptions& options);
  /// This rank's tokens of each micro-batch.
  [[nodiscard]] std::vector<Batch> own(std::span<const Batch> micro_batches) const;

  const RunContext& run_;
  const RunShape shape_;  // rows and tokens as this rank has them
  RunContext part_;       // of the run, with that shape
  std::unique_ptr<Communicator> tensor_, context_ranks_;
  std::unique_ptr<ContextAttention> attention_;
  at::Tensor own_tokens_;  // [micro-batches, 2, rows, own tokens] int64
};

/// The step is lesson 07's Pipeline::train_step, with a TensorStage as layers where ranks share matrices. Its
/// replicas are the ranks of the data and the context axis, which have the same part of each matrix; its two
/// ends have the same part of the tied one.
class Combined final : InnerAxes, public Pipeline {
 public:
  using Plans = CombinedPlans;
  using Options = Plans::Options;

  Combined(RunContext& context, const Options& options);
  StepResult train_step(std::span<const Batch> micro_batches) override {
    return Pipeline::train_step(own(micro_batches));
  }
  void forward_loss(const Batch& batch, at::Tensor& sums) override {
    Pipeline::forward_loss(own({&batch, 1})[0], sums);
  }

 private:
  void wait_reduced() override;
  [[nodiscard]] bool squares(const Stage::Held& held) const override;
  bool compare_copies(std::int64_t step) override;

  const TokenShare tokens_;
};

}  // namespace sc
