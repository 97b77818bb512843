// Forward and backward where several ranks share every matrix: of one micro-batch at a time, or with two
// lanes of two that take turns.
#pragma once

#include <span>
#include <vector>

#include "tensor_lane.h"
#include "tensor_parallel_plan.h"

namespace sc {

class TensorLayers {
 public:
  /// group: the ranks that share the matrices. Of the options counts what is kept, and how many lanes there
  /// are.
  TensorLayers(const RunContext& context, Communicator& group, const ParamLayout& layout,
               const PartSizes& sizes, const TensorParallelOptions& options);
  TensorLayers(const TensorLayers&) = delete;  // lanes point to its parts
  TensorLayers& operator=(const TensorLayers&) = delete;
  /// By unit, what all other calls compute with.
  void use(std::span<const UnitTensors> params, std::span<const UnitTensors> grads);

  /// The following calls are about these micro-batches, at most as many as there are lanes.
  void embed(std::span<const Batch> batches);
  void forward_block(int unit);
  /// Loss and tokens onto `sums`; gradients of the blocks' output, of the head's matrix and of ln_f. write:
  /// of the first micro-batch; a second one is added. backward false: loss and tokens alone.
  void head(Write write, at::Tensor& sums, bool backward = true);
  void backward_block(int unit, Write write);
  /// Tied: onto the head's part of wte's gradient.
  void embed_backward(Write write);

  [[nodiscard]] at::Tensor sums() const { return sums_; }
  /// The gradient of the first block's input, of this rank's tokens.
  [[nodiscard]] StateSlice last_local() const;

 private:
  [[nodiscard]] std::span<TensorLane> active() { return std::span(lanes_).first(batches_.size()); }
  [[nodiscard]] static Write write_of(std::size_t lane, Write write) {
    return lane == 0 ? write : Write::accumulate;
  }

  Timeline& timeline_;
  GptParts parts_;
  std::vector<ActivationSet> kept_;  // by lane
  std::vector<TensorLane> lanes_;
  std::span<const Batch> batches_;  // of the lanes that have one; the caller's
  at::Tensor sums_;                 // [4] fp64
};

}  // namespace sc
