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
  void wait_gathered(int unit);
  void release_params();
  void reduce_grads(int unit, Write write);
  void wait_reduced(int unit);
  void sum_replicas(int unit);
  void global_norm();
  void step_shard(int unit);
  void publish_params();  // persist_below.cpp

  /// Of its two segments; either may be empty.
  [[nodiscard]] std::span<OwnedSlice> slices_of(int unit) {
    return std::span(slices_).subspan(2 * static_cast<std::size_t>(unit), 2);
  }

  RunContext& context_;
  Options options_;
  ParamLayout layout_;
  Passes passes_;
  std::unique_ptr<Communicator> part_;      // of the ranks that share each vector out; null: all
  std::unique_ptr<Communicator> replicas_;  // ranks with the same slices; null: there are no others
  Communicator& shards_;                    // the former, or all
  at::Tensor sums_;                         // [4] fp64: loss, tokens, sum of squares, overflow flag
  std::vector<OwnedSlice> slices_;          // [2 unit + segment]
  std::vector<UnitTensors> params_full_;    // by unit; blocks take turns in a pool of buffers
  std::vector<UnitTensors> grads_full_;     // by unit; blocks take turns in two buffers
  std::vector<std::size_t> params_buffer_, grads_buffer_;  // by unit: which buffer
  std::vector<int> resident_;  // by buffer of parameters: the unit whose parameters are in it, or none
  std::vector<Ticket> gathered_, published_;          // by unit: its sharded segment, its whole one
  std::vector<Ticket> summed_;                        // by slice, over replicas
  std::vector<std::array<PendingSum, 2>> in_flight_;  // by buffer of gradients, and segment
  std::vector<UnitTensors> scratch_;                  // the same: where later micro-batches' sums land
};

}  // namespace sc
