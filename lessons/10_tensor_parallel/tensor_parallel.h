// Lesson 10: tensor parallelism. Every rank has a part of every matrix, and computes it for all tokens; the
// output of every half of every block is a sum over ranks.
//   Source: Shoeybi et al., arXiv:1909.08053 (the cut); Korthikanti et al., arXiv:2205.05198 (between the
//   halves each rank keeps its share of the tokens).
#pragma once

#include <vector>

#include "common/strategy/owned_slice.h"
#include "tensor_lane.h"
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
  [[nodiscard]] std::vector<StateSlice> state() const override { return state_of(last_local(), slices_); }
  [[nodiscard]] const ParamLayout& layout() const override { return parts_.layout(); }

 private:
  // Micro-batch i of `batches` is computed in lane i. `write` is the first one's; a second one accumulates.
  void forward(std::span<const Batch> batches);
  void embed(std::span<const Batch> batches);
  void forward_block(int unit, bool two);
  void head(std::span<const Batch> batches, Write write);
  void backward_block(int unit, Write write);
  void embed_backward(std::span<const Batch> batches, Write write);
  void sum_replicated();
  void global_norm();
  void step_slice(OwnedSlice& slice);
  [[nodiscard]] StateSlice last_local() const;

  RunContext& context_;
  const Options options_;
  const GptParts parts_;
  std::vector<ActivationSet> activations_;  // by lane
  std::vector<TensorLane> lanes_;  // one, or two that take turns; a lane points to parts_ and activations_
  at::Tensor sums_;                // [4] fp64: loss, tokens, sum of squares, overflow flag
  std::vector<UnitTensors> params_, grads_;  // by unit: what is cut (sharded), and what each rank has (whole)
  at::Tensor replicated_grads_;              // all units' whole segments, one after another
  std::vector<OwnedSlice> slices_;           // every segment of every unit, with its optimizer states
  std::span<const Batch> micro_batches_;     // the last step's, which its owner keeps until the next one
  at::Tensor hashes_, hashes_of_all_;  // int64: this rank's, of each unit and of the tokens; every rank's
  std::int64_t replica_checks_ = 0;
};

}  // namespace sc
