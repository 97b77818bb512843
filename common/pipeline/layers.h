// What a stage computes with: its blocks and the model's ends, the activations of the micro-batches that are
// under way, and the gradients between blocks. No messages between stages.
#pragma once

#include <memory>
#include <span>

#include "common/model/activation_buffers.h"
#include "common/pipeline/share.h"

namespace sc {

/// What of a block's backward is computed: the gradient of what it read, those of its weights. B is both at
/// once, I and W are one each.
struct Halves {
  bool inputs = true, weights = true;
};
inline Halves halves_of(pipedream::Kind kind) {
  return {.inputs = kind != pipedream::Kind::backward_weights,
          .weights = kind != pipedream::Kind::backward_input};
}

/// Vectors by unit; undefined where the stage has none. For the head of a tied model unit 0's are the copy's.
struct StageVectors {
  std::span<const UnitTensors> params, grads;
};

class Layers {
 public:
  virtual ~Layers() = default;
  /// The blocks of a position, on what `slot` names; the first one embeds the tokens.
  virtual void forward(const StageVectors& v, int position, const at::Tensor& tokens, const Slot& slot) = 0;
  /// The head is the beginning of backward: loss and tokens onto `sums` [4] fp64, the gradient of the last
  /// block's output. scale: [] fp32, of the loss.
  virtual void head(const StageVectors& v, const at::Tensor& targets, const at::Tensor& scale,
                    const Slot& slot, Write write, at::Tensor& sums) = 0;
  /// Of a block, from a position's last one down. With inputs alone slot.pending keeps what the weights need.
  virtual void backward(const StageVectors& v, int unit, const Slot& slot, Write write, Halves halves) = 0;
  /// After block 1's.
  virtual void embed_backward(const StageVectors& v, const at::Tensor& tokens, const Slot& slot,
                              Write write) = 0;
  /// Loss and tokens of the last position's output.
  virtual void head_loss(const StageVectors& v, const at::Tensor& targets, const Slot& slot,
                         at::Tensor& sums) = 0;

  /// What messages are received into and sent from: all of share.message elements.
  [[nodiscard]] virtual at::Tensor& input(const Slot& slot) = 0;
  [[nodiscard]] virtual at::Tensor& output(const Slot& slot) = 0;
  [[nodiscard]] virtual at::Tensor& gradient(int of_pool) = 0;
  [[nodiscard]] virtual at::Tensor sums() const = 0;
  /// Of the input of the block that backward came to last.
  [[nodiscard]] virtual const at::Tensor& last_gradient() const = 0;
  /// What the blocks are computed with; whoever attends otherwise is handed in there.
  [[nodiscard]] virtual GptHalves& model() = 0;
};

/// Whole matrices on one rank: lessons 07 and 08.
/// Bytes: plan_activation_buffers of share.buffers. `share` outlives it.
std::unique_ptr<Layers> gpt_layers(const RunShape& shape, const Share& share, Ledger& ledger);

}  // namespace sc
