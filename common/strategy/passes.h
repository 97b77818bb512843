// One micro-batch's forward and backward, unit by unit, over buffers that it owns. The strategy decides when
// each unit is computed, and with which vectors.
#pragma once

#include <span>

#include "common/model/activation_buffers.h"
#include "common/strategy/strategy.h"

namespace sc {

/// What a context rank has of a batch: of every row the runs of tokens from its starts on, one after another,
/// copied to own [2, B, n] (int64: tokens, targets). The loss's divisor stays the global batch's.
Batch own_tokens(const Batch& batch, const PartSizes& sizes, const at::Tensor& own);

/// `params` and `grads` are one unit's vectors, or as spans those of all units. The buffers are those of
/// plan_activation_buffers. Each call is marked on the timeline; forward of unit 0 begins a micro-batch.
class Passes {
 public:
  Passes(const RunContext& context, const ParamLayout& layout) : Passes(context, context.shape, layout) {}
  /// Of another batch than the run's: a context rank's part.
  Passes(const RunContext& context, const RunShape& shape, const ParamLayout& layout);
  /// It outlives this.
  void use(Attention& attention) { gpt_.use(attention); }

  /// Computes one unit: 0 embeds the batch, 1 to L are the blocks, in this order. The last is in head().
  void forward(int unit, const Batch& batch, const UnitTensors& params);
  /// Adds loss and tokens to `sums`; computes gradients of the blocks' output, the head's matrix and ln_f.
  void head(const Batch& batch, std::span<const UnitTensors> params, std::span<const UnitTensors> grads,
            Write write, at::Tensor& sums);
  /// Adds loss and tokens to `sums`, without gradients, for evaluation.
  void head_loss(const Batch& batch, std::span<const UnitTensors> params, at::Tensor& sums);
  /// Backward of one block, from block L down. Leaves what backward_weights of the same unit needs; nothing
  /// else may be computed between the two.
  void backward_input(int unit, const UnitTensors& params);
  void backward_weights(int unit, const UnitTensors& grads, Write write);
  /// Backward of the embedding. With a tied head, wte's gradient is added to the one that head() has written.
  void embed_backward(const Batch& batch, const UnitTensors& grads0, Write write);
  /// Backward of the embedding if the head's part of wte's gradient is elsewhere, or if there is none.
  void embed_backward_alone(const Batch& batch, const UnitTensors& grads0, Write write);

  /// The sums of a step, [4] fp64 (common/optim/grad_norm.h).
  [[nodiscard]] at::Tensor sums() const { return buffers_.sums; }
  /// The last local gradient, that of the first block's input, as a StateSlice.
  [[nodiscard]] StateSlice last_local() const;
  [[nodiscard]] const Gpt& gpt() const { return gpt_; }

 private:
  Timeline& timeline_;
  Gpt gpt_;
  ActivationBuffers buffers_;
};

}  // namespace sc
