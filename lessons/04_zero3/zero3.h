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
  /// Publishes whole segments, so that every rank holds those of the last update; the rest stays sharded.
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
  // The setting persist_below adds this function (persist_below.cpp).
  void publish_params();
  // The setting shard_ranks adds these functions (shard_ranks.cpp).
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

  /// `group_` has the ranks that share vectors with this rank (null: all ranks do); `replicas_` has the ranks
  /// of other groups with the same slices (null: there is one group).
  std::unique_ptr<Communicator> group_, replicas_;
  /// The ranks that share each vector out: this rank's group, or all.
  Communicator& shards_;

  /// The step's sums, [4] fp64: loss, tokens, sum of squares, overflow flag.
  at::Tensor sums_;
  /// This rank's slices, at [2 unit + segment].
  std::vector<OwnedSlice> slices_;
  /// The units' full vectors. Blocks take turns in a pool of buffers for parameters, and in two for
  /// gradients.
  std::vector<UnitTensors> params_full_, grads_full_;
  /// The number of each unit's buffer, by unit.
  std::vector<std::size_t> params_buffer_, grads_buffer_;
  /// The unit whose parameters are in a buffer, or kNoUnit, by buffer.
  std::vector<int> in_buffer_;
  /// The gathers of a unit's sharded and of its whole segment, by unit.
  std::vector<Ticket> gathered_, published_;
  /// The sum that is on its way out of a buffer of gradients, by buffer and segment.
  std::vector<std::array<PendingSum, 2>> in_flight_;
  /// For each buffer of gradients, the unit whose sum the operation in flight completes for the step, or
  /// kNoUnit.
  std::vector<int> complete_;
  /// Where the sums of later micro-batches land before they are added, by buffer of gradients.
  std::vector<UnitTensors> scratch_;
  /// The sums of slices over replicas that are on their way.
  std::vector<Ticket> summed_;
};

}  // namespace sc
