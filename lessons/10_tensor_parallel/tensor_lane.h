// One micro-batch on its way through the halves of blocks, where several ranks share every matrix, with the
// messages between them. Every call computes from one message to the next: it waits for the one that it needs
// and leaves the next one on its way.
#pragma once

#include <span>

#include "common/model/activation_buffers.h"
#include "common/model/gpt_parts.h"
#include "common/strategy/strategy.h"

namespace sc {

class TensorLane {
 public:
  /// `group` are the ranks that share the matrices. With `kept` norms of all tokens stay from forward for
  /// backward; where every rank has all tokens anyway they do. `parts` and `group` outlive it.
  TensorLane(const GptParts& parts, Communicator& group, Activations activations, bool kept, Workspace work);
  /// All other calls compute with these vectors, by unit.
  void use(std::span<const UnitTensors> params, std::span<const UnitTensors> grads) {
    params_ = params, grads_ = grads;
  }
  /// The following calls are about the micro-batch whose activations these are, and about blocks `first` to
  /// `last`, whose output is of.x.back().
  void begin(ActivationSet& of, int first, int last) {
    of_ = &of, first_ = first;
    base_ = last + 1 - static_cast<int>(of.x.size());
  }

  /// From tokens to a summand of their embedding, whose sum is on its way.
  void embed(const at::Tensor& tokens);
  /// From that sum, and the positions, to the first block's input; and enters that block.
  void end_embedding();
  /// From a block's input that is there to its norm, which is on its way to all.
  void enter(int unit);
  /// From the norm of all tokens to this rank's heads, or its columns of the MLP.
  void first_product(int unit, Half half);
  /// From there to a summand of all tokens, whose sum is on its way.
  void second_product(int unit, Half half);
  /// The sum is added to the block's input; the norm that the MLP begins with is on its way to all.
  void end_attention(int unit);
  /// The sum completes the block's output; the norm that the next block, or the head, begins with is on its
  /// way to all.
  void end_block(int unit);
  /// The same where nothing follows on this rank: no norm.
  void end_last_block(int unit) { add_mlp(unit, nullptr); }

  /// The norm of the last block's output is on its way to all: what end_block has done, and end_last_block
  /// has not.
  void enter_head();
  /// Adds loss and tokens to `sums`. Where `scale` is defined the sum of the gradient of ln_f's output is on
  /// its way.
  void head(const at::Tensor& targets, const at::Tensor& scale, Write write, at::Tensor& sums);
  /// The gradient of the last block's output is on its way to all.
  void head_backward(Write write);

  /// The gradient [n, d] of a block's output comes from elsewhere; it is on its way to all.
  void take_gradient(const at::Tensor& rows, int unit);
  /// What forward did not keep is computed again, with its messages.
  void recompute(int unit);
  /// From the gradient of a half's output to a summand of the gradient of its norm's output, whose sum is on
  /// its way.
  void backward_to_norm(int unit, Half half);
  void second_weights(int unit, Half half, Write write);
  /// From that sum to the gradient of the half's input, which is on its way to all; or, [n, d], goes to
  /// `out`.
  void backward_of_norm(int unit, Half half, at::Tensor* out = nullptr);
  void first_weights(int unit, Half half, Write write);
  void vectors(int unit, Write write) { parts_->vectors(unit, work_.grads, grads_[unit], write); }
  /// Of a tied matrix the head's part of wte's gradient is there: `wte` accumulates then.
  void embed_backward(const at::Tensor& tokens, Write wte, Write wpe);

  /// [n, d], the gradient of this rank's tokens that backward has come to.
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
  void add_mlp(int unit, BlockNorm* norm_behind);
  [[nodiscard]] at::Tensor statistics(Range rows);

  const GptParts* parts_;
  Communicator* group_;
  Activations activations_;
  bool kept_;
  Workspace work_;
  ActivationSet* of_ = nullptr;
  int first_ = 1, base_ = 1;       // the first block, and the one whose output is of_->x[0]
  std::size_t newest_ = 0;         // of work_.gradients: the one that backward has come to
  Ticket norms_, sum_, gradient_;  // of the messages on their way
  std::span<const UnitTensors> params_, grads_;
};

}  // namespace sc
