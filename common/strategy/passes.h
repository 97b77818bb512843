// One micro-batch's forward and backward, unit by unit, over buffers that it owns. Lesson 00 writes these
// passes out; in the lessons after it a strategy says when each unit is computed, and with which vectors.
#pragma once

#include <span>

#include "common/model/activation_buffers.h"
#include "common/strategy/strategy.h"

namespace sc {

/// `params` and `grads` are one unit's vectors, or (spans) those of all units.
/// Bytes: plan_activation_buffers.
class Passes {
 public:
  Passes(const RunContext& context, const ParamLayout& layout);

  void embed(const Batch& batch, const UnitTensors& params0);
  /// Forward goes from block 1 up, backward from block L down.
  void forward_block(int unit, const UnitTensors& params);
  /// Loss and tokens onto sums(); gradients of the blocks' output, of the head's matrix and of ln_f.
  void head(const Batch& batch, std::span<const UnitTensors> params, std::span<const UnitTensors> grads,
            Write write);
  /// Loss and tokens alone: evaluation.
  void head_loss(const Batch& batch, std::span<const UnitTensors> params);
  /// Leaves what backward_weights of the same unit needs; nothing else may be computed between the two.
  void backward_input(int unit, const UnitTensors& params);
  void backward_weights(int unit, const UnitTensors& grads, Write write);
  /// Tied: wte's gradient goes onto the head's part of it, which head() has written.
  void embed_backward(const Batch& batch, const UnitTensors& grads0, Write write);

  /// [4] fp64, see common/optim/grad_norm.h.
  [[nodiscard]] at::Tensor& sums() { return buffers_.sums; }
  /// The last local gradient, of x[0], as StateSlice has it.
  void visit_last_local(StateVisitor& visitor) const;

 private:
  Gpt gpt_;
  ActivationBuffers buffers_;
};

}  // namespace sc
