// Lesson 02: ZeRO-1. Every rank still holds all parameters and all gradients, but the optimizer's state of
// one slice of each unit only: it updates that slice and gets the others from their owners.
//   Source: Rajbhandari et al., ZeRO, arXiv:1910.02054, section 5.1 (P_os).
#pragma once

#include <vector>

#include "common/strategy/owned_slice.h"
#include "common/strategy/passes.h"
#include "zero1_plan.h"

namespace sc {

class Zero1 final : public Strategy {
 public:
  using Plans = Zero1Plans;
  using Options = Plans::Options;

  Zero1(RunContext& context, const Options& options);
  StepResult train_step(std::span<const Batch> micro_batches) override;
  /// Publishes, so that every rank holds all parameters of the last update.
  void quiet() override;
  void forward_loss(const Batch& batch, at::Tensor& sums) override;
  [[nodiscard]] at::Tensor& sums() override { return sums_; }
  [[nodiscard]] std::vector<StateSlice> state() const override {
    return state_of(passes_.last_local(), slices_);
  }
  [[nodiscard]] const ParamLayout& layout() const override { return layout_; }

 private:
  void forward(const Batch& batch, bool publish);
  void publish_params(int unit);
  void reduce_grads(int unit);
  void wait_reduced(int unit);
  void global_norm();
  void step_shard(int unit);

  RunContext& context_;
  Options options_;
  ParamLayout layout_;
  Passes passes_;
  at::Tensor sums_;  // [4] fp64: loss, tokens, sum of squares, overflow flag
  std::vector<UnitTensors> params_full_, grads_full_;  // by unit: views of arenas
  std::vector<OwnedSlice> slices_;  // by unit; their parameters and gradients lie inside the full ones
  std::vector<Ticket> reduced_, published_;  // by unit
};

}  // namespace sc
