// One micro-batch's forward and backward, unit by unit, over buffers that it owns. A strategy says when each
// unit is computed, and with which vectors.
#pragma once

#include <span>

#include "common/model/activation_buffers.h"
#include "common/strategy/strategy.h"

namespace sc {

/// What a context rank has of a batch: of every row the tokens from its starts on, the first chunk of all
/// rows first, copied to own [2, C B, m] (int64: tokens, targets). A chunk is a row of its own to all but
/// attention and positions; the loss's divisor stays the global batch's.
Batch own_tokens(const Batch& batch, const PartSizes& sizes, const at::Tensor& own);

/// `params` and `grads` are one unit's vectors, or (spans) those of all units.
/// Bytes: plan_activation_buffers.
/// Each call is marked on the timeline; forward of unit 0 begins a micro-batch.
class Passes {
 public:
  Passes(const RunContext& context, const ParamLayout& layout) : Passes(context, context.shape, layout) {}
  /// Of another batch than the run's: a context rank's part.
  Passes(const RunContext& context, const RunShape& shape, const ParamLayout& layout);
  /// It outlives this.
  void use(Attention& attention) { gpt_.use(attention); }

  /// Unit 0 embeds the batch, units 1 to L are the blocks, in this order; the last unit computes in head().
  void forward(int unit, const Batch& batch, const UnitTensors& params);
  /// Loss and tokens onto `sums`; gradients of the blocks' output, of the head's matrix and of ln_f.
  void head(const Batch& batch, std::span<const UnitTensors> params, std::span<const UnitTensors> grads,
            Write write, at::Tensor& sums);
  /// Loss and tokens alone: evaluation.
  void head_loss(const Batch& batch, std::span<const UnitTensors> params, at::Tensor& sums);
  /// From block L down. Leaves what backward_weights of the same unit needs; nothing else may be computed
  /// between the two.
  void backward_input(int unit, const UnitTensors& params);
  void backward_weights(int unit, const UnitTensors& grads, Write write);
  /// Tied: wte's gradient goes onto the head's part of it, which head() has written.
  void embed_backward(const Batch& batch, const UnitTensors& grads0, Write write);
  /// The same where the head's part of wte's gradient is elsewhere, or there is none.
  void embed_backward_alone(const Batch& batch, const UnitTensors& grads0, Write write);

  /// [4] fp64, see common/optim/grad_norm.h: where a step adds them up.
  [[nodiscard]] at::Tensor sums() const { return buffers_.sums; }
  /// The last local gradient, of the first block's input, as StateSlice has it.
  [[nodiscard]] StateSlice last_local() const;
  [[nodiscard]] const Gpt& gpt() const { return gpt_; }

 private:
  Timeline& timeline_;
  Gpt gpt_;
  ActivationBuffers buffers_;
};

}  // namespace sc
