// Forward and backward where several ranks share every matrix, with the messages between them.
#pragma once

#include <span>
#include <vector>

#include "common/model/gpt_parts.h"
#include "common/strategy/strategy.h"

namespace sc {

/// Of one micro-batch at a time, or with two lanes of two that take turns.
class TensorLayers {
 public:
  struct How {
    bool kept = false;  // norms of all tokens stay from forward for backward; where tokens are whole they do
    std::int64_t lanes = 1;  // buffers for so many micro-batches
  };
  /// group: the ranks that share the matrices.
  TensorLayers(const RunContext& context, Communicator& group, const ParamLayout& layout,
               const PartSizes& sizes, const How& how);
  /// By unit, what all other calls compute with.
  void use(std::span<const UnitTensors> params, std::span<const UnitTensors> grads);

  /// The following calls are about these micro-batches, at most as many as there are lanes.
  void embed(std::span<const Batch> batches);
  void forward_block(int unit);
  /// Loss and tokens onto `sums`; gradients of the blocks' output, of the head's matrix and of ln_f. write: of the first
  /// micro-batch; a second one is added.
  void head(Write write, at::Tensor& sums);
  void head_loss(at::Tensor& sums);
  void backward_block(int unit, Write write);
  /// Tied: onto the head's part of wte's gradient.
  void embed_backward(Write write);

  [[nodiscard]] at::Tensor sums() const { return sums_; }
  /// The gradient of the first block's input, of this rank's tokens.
  [[nodiscard]] StateSlice last_local() const;

 private:
  /// One micro-batch on its way.
  struct Lane {
    PartBuffers buffers;
    const Batch* batch = nullptr;  // the caller's
    std::size_t newest = 0;        // of buffers.gradients: what backward has come to
    [[nodiscard]] GatheredRows& gradient_rows() { return buffers.gradients[newest]; }
    Ticket norms = {}, sum = {}, gradient = {};  // on their way
  };
  [[nodiscard]] Ticket gather(GatheredRows& rows, const What& what);
  void gather_norm(Lane& lane, int unit, Half half);
  void gather_gradient(Lane& lane, int unit);
  void sum_partial(Lane& lane, const What& what);
  [[nodiscard]] PartSaved& saved(Lane& lane, int unit);
  [[nodiscard]] at::Tensor& gelu(Lane& lane, int unit);

  void advance(Lane& lane, int unit, Half half);
  void complete_block(Lane& lane, int unit, PartNorm& norm_behind);
  void first(Lane& lane, int unit, Half half);
  void second(Lane& lane, int unit, Half half);
  [[nodiscard]] at::Tensor statistics(Lane& lane, Range rows);
  void head_chunks(Lane& lane, const at::Tensor& scale, Write write, at::Tensor& sums);
  [[nodiscard]] bool has_norms(Half half) const;
  void backward_to_norm(Lane& lane, int unit, Half half);
  void backward_of_norm(Lane& lane, int unit, Half half);
  void recompute(Lane& lane, int unit);
  [[nodiscard]] Write write_of(const Lane& lane, Write write) const;

  Timeline& timeline_;
  Communicator& group_;
  GptParts parts_;
  bool kept_;  // or whole
  Activations activations_;
  std::vector<Lane> lanes_;
  std::span<Lane> active_;  // those with a micro-batch
  std::span<const UnitTensors> params_, grads_;
  at::Tensor sums_;  // [4] fp64
};

}  // namespace sc
