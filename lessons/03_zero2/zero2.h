// Lesson 03: ZeRO-2. A block's gradient goes to its owners as soon as it is complete, and its memory to the
// block below: full gradients of only four units are ever alive.
//   Source: Rajbhandari et al., ZeRO, arXiv:1910.02054, section 5.2 (P_os+g).
#pragma once

#include <optional>
#include <vector>

#include "common/strategy/owned_slice.h"
#include "common/strategy/passes.h"
#include "grad_bucket.h"
#include "zero2_plan.h"

namespace sc {

class Zero2 final : public Strategy {
 public:
  using Plans = Zero2Plans;
  using Options = Plans::Options;

  Zero2(RunContext& context, const Options& options);
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
  void reduce_grads(int unit, Write write);
  void wait_reduced(int unit);
  void wait_all_reduced();
  void global_norm();
  void step_shard(int unit);

  RunContext& context_;
  Options options_;
  ParamLayout layout_;
  Passes passes_;
  at::Tensor sums_;                       // [4] fp64: loss, tokens, sum of squares, overflow flag
  std::vector<UnitTensors> params_full_;  // by unit: views of an arena
  std::vector<UnitTensors> grads_full_;   // by unit; blocks take turns in two buffers
  std::vector<OwnedSlice> slices_;        // by unit; their parameters lie inside the full ones
  std::vector<Ticket> published_;         // by unit
  std::vector<PendingSum> in_flight_;     // by buffer: what is on its way out of it
  std::vector<at::Tensor> scratch_;       // by buffer: where later micro-batches' sums land
  std::optional<GradBucket> bucket_;      // where the options ask for one
};

}  // namespace sc
