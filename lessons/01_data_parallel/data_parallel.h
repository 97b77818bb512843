// Lesson 01: data parallelism. Every rank holds everything; gradients are summed over ranks while backward
// runs.
//   Source: Li et al., PyTorch Distributed, VLDB 2020 (buckets and overlap); Goyal et al., arXiv:1706.02677
//   (the sum over ranks is the large batch).
#pragma once

#include <vector>

#include "common/strategy/owned_slice.h"
#include "common/strategy/passes.h"
#include "data_parallel_plan.h"

namespace sc {

class DataParallel : public Strategy {
 public:
  using Plans = DataParallelPlans;
  using Options = Plans::Options;

  DataParallel(RunContext& context, const Options& options);
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
  /// A bucket on its way to being summed over ranks.
  struct Message {
    int ready_after;   // the unit that completes it
    int unit;          // that it lies in; kNoUnit: it has parts of several
    at::Tensor grads;  // its range of all units' gradients
    at::Tensor sums;   // where they are summed while they travel in another dtype, else undefined
    Ticket ticket;
  };

  void forward(const Batch& batch);
  void reduce_grads(int unit);
  void wait_reduced(int unit);
  void convert(Message& bucket);
  void wait(Message& bucket);
  void global_norm();
  void step_unit(int unit);

  RunContext& context_;
  Options options_;
  ParamLayout layout_;
  Passes passes_;
  at::Tensor sums_;          // [4] fp64: loss, tokens, sum of squares, overflow flag
  at::Tensor params_arena_;  // all units' parameters, one after another
  std::vector<UnitTensors> params_full_, grads_full_;  // by unit: views of arenas
  std::vector<OwnedSlice> slices_;                     // by unit: all of it, with its optimizer state
  std::vector<Message> buckets_;                       // in the order in which backward completes them
  at::Tensor
      grads_bucket_;  // one bucket in precision.reduce_dtype; undefined if that is the gradients' dtype
  at::Tensor hash_, hashes_full_;  // of this rank's parameters; of every rank's
  std::int64_t replica_checks_ = 0;
};

}  // namespace sc
