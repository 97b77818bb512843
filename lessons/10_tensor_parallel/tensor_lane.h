// One micro-batch on its way through the halves of blocks, where several ranks share every matrix. Every call
// computes from one collective to the next: it waits for the one that it needs, and starts the next one. With
// tokens=split a gather is an all-gather of all ranks' tokens, and a sum a reduce-scatter that leaves a rank
// its own; with tokens=whole a gather sends nothing, and a sum is an all-reduce.
#pragma once

#include <span>

#include "common/model/activation_buffers.h"
#include "common/model/gpt_parts.h"
#include "common/strategy/strategy.h"

namespace sc {

class TensorLane {
 public:
  /// `group` are the ranks that share the matrices. With `kept` norms of all tokens stay from forward for
  /// backward, as they do where every rank has all tokens anyway. `parts` and `group` outlive the lane.
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

  /// Looks up the tokens in this rank's rows of wte, and starts the sum of the embedding.
  void embed(const at::Tensor& tokens);
  /// Waits for the sum of the embedding, adds the positions, and enters the first block.
  void end_embedding();
  /// Computes the norm of a block's input, and starts its gather.
  void enter(int unit);
  /// Waits for the gathered norm, and computes this rank's heads, or columns of the MLP, for all tokens.
  void first_product(int unit, Half half);
  /// Computes this rank's summand of the half's output, for all tokens, and starts the sum.
  void second_product(int unit, Half half);
  /// Waits for the sum, adds it to the block's input, and starts the gather of the norm for the MLP.
  void end_attention(int unit);
  /// Waits for the sum, which completes the block's output, and starts the gather of the norm for the next
  /// block or the head.
  void end_block(int unit);
  /// As end_block, where nothing follows on this rank that needs a norm.
  void end_last_block(int unit) { add_mlp(unit, nullptr); }

  /// After end_last_block: computes the norm of the last block's output, and starts its gather.
  void enter_head();
  /// Adds loss and tokens to `sums`. With a defined `scale`, starts the sum of the gradient of ln_f's output.
  void head(const at::Tensor& targets, const at::Tensor& scale, Write write, at::Tensor& sums);
  /// Waits for the sum, computes the gradient of the last block's output, and starts its gather.
  void head_backward(Write write);

  /// Takes the gradient [n, d] of a block's output that comes from another stage, and starts its gather.
  void take_gradient(const at::Tensor& rows, int unit);
  /// Computes again what forward did not keep, with its collectives.
  void recompute(int unit);
  /// Waits for the gathered gradient of a half's output, computes a summand of that of its norm's output, and
  /// starts the sum.
  void backward_to_norm(int unit, Half half);
  void second_weights(int unit, Half half, Write write);
  /// Waits for the sum and computes the half's input gradient; starts its gather, or fills `out` [n, d].
  void backward_of_norm(int unit, Half half, at::Tensor* out = nullptr);
  void first_weights(int unit, Half half, Write write);
  void vectors(int unit, Write write) { parts_->vectors(unit, work_.grads, grads_[unit], write); }
  /// With a tied matrix head() has left its part of wte's gradient, so `wte` accumulates.
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
  Ticket norms_, sum_, gradient_;  // of the collectives on their way
  std::span<const UnitTensors> params_, grads_;
};

}  // namespace sc
