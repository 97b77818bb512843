// Lesson 00: one device. What one training step holds and computes.
#pragma once

#include <vector>

#include "common/strategy/owned_slice.h"
#include "common/strategy/passes.h"

namespace sc {

class OneDevice : public Strategy {
 public:
  /// Vectors are padded so that `ranks` ranks could cut them into slices. `plan` has what plan_one_device
  /// says, and what a derived class takes.
  OneDevice(RunContext& context, WorldSize ranks, const MemoryPlan& plan);
  StepResult train_step(std::span<const Batch> micro_batches) override;
  void forward_loss(const Batch& batch, at::Tensor& sums) override;
  [[nodiscard]] at::Tensor& sums() override { return sums_; }
  [[nodiscard]] std::vector<StateSlice> state() const override {
    return state_of(passes_.last_local(), slices_);
  }
  [[nodiscard]] const ParamLayout& layout() const override { return layout_; }

 protected:
  void forward(const Batch& batch);
  void global_norm();
  void step_unit(int unit);

  RunContext& context_;
  PlannedBuffers buffers_;
  ParamLayout layout_;
  Passes passes_;
  at::Tensor sums_;         // [4] fp64: loss, tokens, sum of squares, overflow flag
  at::Tensor grads_arena_;  // all units' gradients, one after another, and what a derived class puts behind
  std::vector<UnitTensors> params_full_, grads_full_;  // by unit: views of arenas
  std::vector<OwnedSlice> slices_;                     // by unit: all of it, with its optimizer state
};

}  // namespace sc
