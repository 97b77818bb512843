// What a stage computes with: its blocks and the model's ends, the activations of the micro-batches that are
// under way, and the gradients between blocks. No messages between stages.
#pragma once

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
};

/// Whole matrices on one rank: lessons 07 and 08.
class GptLayers final : public Layers {
 public:
  /// Bytes: plan_activation_buffers of share.buffers.
  GptLayers(const RunShape& shape, const Share& share, Ledger& ledger);
  void forward(const StageVectors& v, int position, const at::Tensor& tokens, const Slot& slot) override;
  void head(const StageVectors& v, const at::Tensor& targets, const at::Tensor& scale, const Slot& slot,
            Write write, at::Tensor& sums) override;
  void backward(const StageVectors& v, int unit, const Slot& slot, Write write, Halves halves) override;
  void embed_backward(const StageVectors& v, const at::Tensor& tokens, const Slot& slot,
                      Write write) override;
  void head_loss(const StageVectors& v, const at::Tensor& targets, const Slot& slot,
                 at::Tensor& sums) override;
  [[nodiscard]] at::Tensor& input(const Slot& slot) override;
  [[nodiscard]] at::Tensor& output(const Slot& slot) override { return set(slot).x.back(); }
  [[nodiscard]] at::Tensor& gradient(int of_pool) override { return slab(share_.grad_slab(of_pool)); }
  [[nodiscard]] at::Tensor sums() const override { return buffers_.sums; }
  [[nodiscard]] const at::Tensor& last_gradient() const override { return last_grad_; }

 private:
  [[nodiscard]] ActivationSet& set(const Slot& slot) {
    return buffers_.sets[static_cast<std::size_t>(slot.set)];
  }
  [[nodiscard]] BlockSaved& saved(int unit, const Slot& slot);
  [[nodiscard]] at::Tensor& grad_of_output(int unit, const Slot& slot);
  [[nodiscard]] at::Tensor& grad_of_input(int unit, const Slot& slot);
  [[nodiscard]] at::Tensor& slab(int index) { return buffers_.grad_x[static_cast<std::size_t>(index)]; }

  const Share& share_;
  Gpt gpt_;
  ActivationBuffers buffers_;
  at::Tensor last_grad_;
};

}  // namespace sc
