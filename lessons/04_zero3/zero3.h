// Lesson 04: ZeRO-3. Parameters are sharded too: a unit's are gathered when it computes, and their memory is
// used again when it has.
//   Source: Rajbhandari et al., ZeRO, arXiv:1910.02054, section 5.3 (P_os+g+p); FSDP, arXiv:2304.11277
//   (prefetch).
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "common/strategy/owned_slice.h"
#include "common/strategy/passes.h"
#include "zero3_plan.h"

namespace sc {

class Zero3 final : public Strategy {
 public:
  using Plans = Zero3Plans;
  using Options = Plans::Options;

  Zero3(RunContext& context, const Options& options);
  StepResult train_step(std::span<const Batch> micro_batches) override;
  /// After it every rank holds the whole segments of the last update; the rest stays sharded.
  void quiet() override;
  void forward_loss(const Batch& batch, at::Tensor& sums) override;
  [[nodiscard]] at::Tensor& sums() override { return sums_; }
  [[nodiscard]] std::vector<StateSlice> state() const override {
    return state_of(passes_.last_local(), slices_);
  }
  [[nodiscard]] const ParamLayout& layout() const override { return layout_; }

 private:
  void forward(const Batch& batch);
  void gather_params(int unit);
  void wait_gathered(int unit) { gathered_[unit].wait(), published_[unit].wait(); }
  void release_params();
  void reduce_grads(int unit, Write write, bool last);
  void wait_reduced(int unit);
  void global_norm();
  void step_shard(int unit);
  // persist_below.cpp
  void publish_params();
  // shard_ranks.cpp
  void sum_replicas(std::size_t buffer);
  void add_squares();

  /// The slices of a unit's two segments; either may be empty.
  [[nodiscard]] std::span<OwnedSlice> slices_of(int unit) {
    return std::span(slices_).subspan(2 * static_cast<std::size_t>(unit), 2);
  }

  RunContext& context_;
  Options options_;
  ParamLayout layout_;
  Passes passes_;

  /// The ranks of this one's group (null: all ranks are one group), and those that have its slices in the
  /// other groups (null: there are no others).
  std::unique_ptr<Communicator> group_, replicas_;
  /// The ranks that share each vector out: this rank's group, or all.
  Communicator& shards_;

  /// [4] fp64: loss, tokens, sum of squares, overflow flag.
  at::Tensor sums_;
  /// [2 unit + segment]
  std::vector<OwnedSlice> slices_;
  /// Each by unit. Blocks take turns in a pool of buffers for parameters, and in two for gradients.
  std::vector<UnitTensors> params_full_, grads_full_;
  /// By unit: the number of its buffer.
  std::vector<std::size_t> params_buffer_, grads_buffer_;
  /// By buffer of parameters: the unit whose parameters are in it, or kNoUnit.
  std::vector<int> in_buffer_;
  /// By unit: the gathers of its sharded and of its whole segment.
  std::vector<Ticket> gathered_, published_;
  /// By buffer of gradients, and segment: the sum that is on its way out of it.
  std::vector<std::array<PendingSum, 2>> in_flight_;
  /// By buffer of gradients: the unit whose step's sum that completes, or kNoUnit.
  std::vector<int> complete_;
  /// By buffer of gradients: where the sums of later micro-batches land before they are added.
  std::vector<UnitTensors> scratch_;
  /// Slices' sums over replicas.
  std::vector<Ticket> summed_;
};

}  // namespace sc
