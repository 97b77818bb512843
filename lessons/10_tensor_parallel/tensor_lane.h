// One micro-batch on its way through the halves of blocks, where several ranks share every matrix, with the
// messages between them.
#pragma once

#include <span>

#include "common/model/activation_buffers.h"
#include "common/model/gpt_parts.h"
#include "common/strategy/strategy.h"

namespace sc {

class TensorLane {
 public:
  /// group: the ranks that share the matrices. kept: norms of all tokens stay from forward for backward;
  /// where tokens are whole they do.
  TensorLane(const GptParts& parts, Communicator& group, Activations activations, bool kept, Workspace work);
  /// By unit, what all other calls compute with.
  void use(std::span<const UnitTensors> params, std::span<const UnitTensors> grads) {
    params_ = params, grads_ = grads;
  }
  /// The following calls are about the micro-batch whose activations these are, and blocks first to last,
  /// whose output is of.x.back().
  void begin(ActivationSet& of, int first, int last) {
    of_ = &of, first_ = first;
    base_ = last + 1 - static_cast<int>(of.x.size());
  }

  /// Forward begins with the embedding's sum on its way to x[0], or with x[0]: then block `unit` is entered,
  /// its norm on its way.
  void embed(const at::Tensor& tokens);
  void enter(int unit);
  /// To my heads, or my columns of the MLP; then to a summand of all tokens, whose sum is on its way.
  void first(int unit, Half half);
  void second(int unit, Half half);
  /// To the beginning of a half, or of the head: what came before it is complete, and its norm is on its way
  /// to all.
  void advance(int unit, Half half);
  /// To the end of a block that nothing here follows.
  void complete(int unit) { end_of_block(unit, nullptr); }

  /// Of the last block's output, where `advance` has not come to it; or again.
  void enter_head();
  /// Loss and tokens onto `sums`; with `scale` the sum of the gradient behind ln_f is on its way. write: of
  /// the first micro-batch.
  void head(const at::Tensor& targets, const at::Tensor& scale, Write write, at::Tensor& sums);
  /// The gradient of the last block's output, on its way to all.
  void head_backward(Write write);

  /// Backward of a half: norms of all tokens again, back to the summand of its norm's gradient; weights of
  /// the second matrix; the norm's own; weights of the first matrix.
  void backward_to_norm(int unit, Half half);
  void second_weights(int unit, Half half, Write write);
  ///   out  where the gradient of a block's input goes that is for elsewhere, [n, d]; null: on its way to all
  void backward_of_norm(int unit, Half half, at::Tensor* out = nullptr);
  void first_weights(int unit, Half half, Write write);
  void vectors(int unit, Write write) { parts_->vectors(unit, work_.grads, grads_[unit], write); }
  /// What forward did not keep: its products again, with their messages.
  void recompute(int unit);
  /// The gradient [n, d] of a block's output comes from elsewhere.
  void take_gradient(const at::Tensor& rows, int unit);
  /// wte: of a tied matrix onto the head's part.
  void embed_backward(const at::Tensor& tokens, Write wte, Write wpe);

  /// The gradient that backward has come to, of this rank's tokens.
  [[nodiscard]] const at::Tensor& newest() const { return work_.gradients[newest_].own; }

 private:
  [[nodiscard]] Ticket gather(GatheredRows& rows, const What& what);
  void gather_norm(int unit, Half half);
  void gather_gradient(int unit);
  void sum_partial(const What& what);
  [[nodiscard]] BlockSaved& saved(int unit);
  [[nodiscard]] at::Tensor& gelu(int unit);
  [[nodiscard]] at::Tensor& x(int unit) {
    return unit < first_ ? of_->input : of_->x[static_cast<std::size_t>(unit - base_)];
  }
  void end_of_block(int unit, BlockNorm* norm_behind);
  [[nodiscard]] at::Tensor statistics(Range rows);

  const GptParts* parts_;
  Communicator* group_;
  Activations activations_;
  bool kept_;  // or whole
  Workspace work_;
  ActivationSet* of_ = nullptr;
  int first_ = 1, base_ = 1;       // the first block; the one of of_->x[0]
  std::size_t newest_ = 0;         // of work_.gradients
  Ticket norms_, sum_, gradient_;  // on their way
  std::span<const UnitTensors> params_, grads_;
};

}  // namespace sc
