// Lesson 10: tensor parallelism. Every rank has a part of every matrix, and computes it for all tokens; what
// lies between the matrices is summed over ranks in every half of every block.
//   Source: Shoeybi et al., arXiv:1909.08053 (the cut); Korthikanti et al., arXiv:2205.05198 (tokens split
//   between the halves).
#pragma once

#include <vector>

#include "common/strategy/owned_slice.h"
#include "tensor_layers.h"
#include "tensor_parallel_plan.h"

namespace sc {

class TensorParallel : public Strategy {
 public:
  using Plans = TensorParallelPlans;
  using Options = Plans::Options;

  TensorParallel(RunContext& context, const Options& options);
  StepResult train_step(std::span<const Batch> micro_batches) override;
  void forward_loss(const Batch& batch, at::Tensor& sums) override;
  void after_step(std::int64_t step) override;
  [[nodiscard]] std::int64_t replica_checks() const override { return replica_checks_; }
  [[nodiscard]] at::Tensor& sums() override { return sums_; }
  [[nodiscard]] std::vector<StateSlice> state() const override {
    return state_of(layers_.last_local(), slices_);
  }
  [[nodiscard]] const ParamLayout& layout() const override { return layout_; }

 private:
  void forward(std::span<const Batch> batches);
  void sum_replicated();
  void global_norm();
  void step_slice(OwnedSlice& slice);

  RunContext& context_;
  Options options_;
  ParamLayout layout_;
  PartSizes sizes_;
  TensorLayers layers_;
  at::Tensor sums_;                          // [4] fp64: loss, tokens, sum of squares, overflow flag
  std::vector<UnitTensors> params_, grads_;  // by unit: what is cut (sharded), and what each rank has (whole)
  at::Tensor replicated_grads_;              // all units' whole segments, one after another
  std::vector<OwnedSlice> slices_;           // by unit: both of them, with their optimizer states
  std::span<const Batch> micro_batches_;     // of the last step: whoever gave them still has them
  at::Tensor hashes_, hashes_of_all_;        // of this rank; of every rank
  std::int64_t replica_checks_ = 0;
};

}  // namespace sc
