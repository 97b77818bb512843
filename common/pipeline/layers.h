// The computation of a stage: its blocks and the model's ends, the activations of the micro-batches in
// flight, and the gradients between blocks. No messages between stages.
#pragma once

#include <memory>
#include <span>

#include "common/model/activation_buffers.h"
#include "common/pipeline/share.h"

namespace sc {

/// The halves of a block's backward: the gradients of its input and of its weights. Action B does both, I and
/// W one each.
struct Halves {
  bool inputs = true, weights = true;
};
inline Halves halves_of(pipedream::Kind kind) {
  return {.inputs = kind != pipedream::Kind::backward_weights,
          .weights = kind != pipedream::Kind::backward_input};
}

/// The stage's vectors by unit, undefined for units elsewhere. A tied model's head has the copy under unit 0.
struct StageVectors {
  std::span<const UnitTensors> params, grads;
};

class Layers {
 public:
  virtual ~Layers() = default;
  /// Runs the blocks of a position in the buffers of `slot`; the first position embeds the tokens.
  virtual void forward(const StageVectors& v, int position, const at::Tensor& tokens, const Slot& slot) = 0;
  /// Begins a backward: adds loss and tokens to `sums` [4] fp64, and computes the gradient of the last
  /// block's output. `scale` is [] fp32, the factor of the loss.
  virtual void head(const StageVectors& v, const at::Tensor& targets, const at::Tensor& scale,
                    const Slot& slot, Write write, at::Tensor& sums) = 0;
  /// Backward of one block, last first. With inputs alone, slot.pending keeps what the weights need.
  virtual void backward(const StageVectors& v, int unit, const Slot& slot, Write write, Halves halves) = 0;
  /// Backward of the embedding, after that of block 1.
  virtual void embed_backward(const StageVectors& v, const at::Tensor& tokens, const Slot& slot,
                              Write write) = 0;
  /// Adds the loss and tokens of the last position's output to `sums`, without gradients.
  virtual void head_loss(const StageVectors& v, const at::Tensor& targets, const Slot& slot,
                         at::Tensor& sums) = 0;

  /// The tensors that messages are received into and sent from, of share.message elements.
  [[nodiscard]] virtual at::Tensor& input(const Slot& slot) = 0;
  [[nodiscard]] virtual at::Tensor& output(const Slot& slot) = 0;
  [[nodiscard]] virtual at::Tensor& gradient(int of_pool) = 0;
  /// The tensor [4] fp64 in which losses and tokens may be added up (common/optim/grad_norm.h).
  [[nodiscard]] virtual at::Tensor& sums() = 0;
  /// The gradient of the input of the block whose backward ran last.
  [[nodiscard]] virtual const at::Tensor& last_gradient() const = 0;
  /// What the blocks are computed with; whoever attends otherwise is handed in there.
  [[nodiscard]] virtual GptHalves& model() = 0;
};

/// Layers with whole matrices on one rank, for lessons 07 and 08. The buffers are those of
/// plan_activation_buffers for share.buffers. `share` must outlive them.
std::unique_ptr<Layers> gpt_layers(const RunShape& shape, const Share& share, Ledger& ledger);

}  // namespace sc
