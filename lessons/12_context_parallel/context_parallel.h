// Lesson 12: context parallelism. Every rank holds the whole model and has tokens of its own of every row:
// all but attention works on each token by itself, and attention's keys and values travel.
//   Source: Liu et al., Ring Attention, arXiv:2310.01889; Llama 3, arXiv:2407.21783, section 3.3.2 (gather).
#pragma once

#include <vector>

#include "common/strategy/owned_slice.h"
#include "common/strategy/passes.h"
#include "context_attention.h"
#include "context_parallel_plan.h"

namespace sc {

class ContextParallel : public Strategy {
 public:
  using Plans = ContextParallelPlans;
  using Options = Plans::Options;

  ContextParallel(RunContext& context, const Options& options);
  StepResult train_step(std::span<const Batch> micro_batches) override;
  void forward_loss(const Batch& batch, at::Tensor& sums) override;
  void after_step(std::int64_t step) override;
  [[nodiscard]] std::int64_t replica_checks() const override { return replica_checks_; }
  [[nodiscard]] at::Tensor& sums() override { return sums_; }
  [[nodiscard]] std::vector<StateSlice> state() const override {
    return state_of(passes_.last_local(), slices_);
  }
  [[nodiscard]] const ParamLayout& layout() const override { return layout_; }

 private:
  ContextParallel(RunContext& context, const Options& options, PlannedBuffers buffers);
  void forward(const Batch& batch);
  void reduce_grads(int unit);
  void wait_reduced(int unit) { reduced_[unit].wait(); }
  void global_norm();
  void step_unit(int unit);

  RunContext& context_;
  Options options_;
  ContextCut cut_;
  ParamLayout layout_;
  Passes passes_;
  ContextAttention attention_;
  at::Tensor sums_;          // [4] fp64: loss, tokens, sum of squares, overflow flag
  at::Tensor own_;           // [2, rows, own tokens] int64: this rank's tokens and targets
  at::Tensor params_arena_;  // all units' parameters, one after another
  std::vector<UnitTensors> params_full_, grads_full_;  // by unit: views of arenas
  std::vector<OwnedSlice> slices_;                     // by unit: all of it, with its optimizer state
  std::vector<Ticket> reduced_;                        // by unit
  at::Tensor hash_, hashes_full_;                      // of this rank's parameters; of every rank's
  std::int64_t replica_checks_ = 0;
};

}  // namespace sc
