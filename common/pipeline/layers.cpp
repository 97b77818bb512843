#include "common/pipeline/layers.h"

#include "common/optim/grad_norm.h"

namespace sc {
namespace {

HeadResult result_in(const at::Tensor& sums) { return {sums.select(0, kLossSum), sums.select(0, kTokens)}; }

class GptLayers final : public Layers {
 public:
  GptLayers(const RunShape& shape, const Share& share, Ledger& ledger)
      : share_(share),
        gpt_(shape, share.layout),
        buffers_(gpt_, ledger, share.buffers),
        last_grad_(buffers_.grad_x[0]) {}

  void forward(const StageVectors& v, int position, const at::Tensor& tokens, const Slot& slot) override {
    const Part& part = share_.part(position);
    at::Tensor* x = &input(slot);
    if (share_.embeds(position)) gpt_.embed(v.params[0], tokens, *x);
    for (int unit = part.first; unit <= part.last(); ++unit) {
      at::Tensor& y = set(slot).x[static_cast<std::size_t>(share_.most_blocks - 1 - (part.last() - unit))];
      gpt_.forward_block(unit, v.params[unit], *x, saved(unit, slot), buffers_.ws, y);
      x = &y;
    }
  }

  // [anchor: last-stage-begins-backward]
  // The head belongs to backward, not to forward, so that logits exist for one chunk of tokens only.
  void head(const StageVectors& v, const at::Tensor& targets, const at::Tensor& scale, const Slot& slot,
            Write write, at::Tensor& sums) override {
    const auto unit = static_cast<std::size_t>(gpt_.head_unit());
    at::Tensor grad_head = gpt_.head_matrix(v.grads[unit]);
    HeadResult result = result_in(sums);
    gpt_.head(gpt_.head_matrix(v.params[unit]), v.params.back(), output(slot), targets, scale,
              grad_of_output(share_.layout.num_blocks(), slot), grad_head, v.grads.back(), write, buffers_.ws,
              result);
  }

  void backward(const StageVectors& v, int unit, const Slot& slot, Write write, Halves halves) override {
    BlockSaved& kept = saved(unit, slot);
    const int nth = share_.part_of(unit).last() - unit;
    BlockGrads& left =
        slot.pending == kNoBuffer
            ? buffers_.ws.grads
            : buffers_.pending[static_cast<std::size_t>(slot.pending * share_.most_blocks + nth)];
    if (halves.inputs) {
      last_grad_ = grad_of_input(unit, slot);
      gpt_.backward_input(unit, v.params[unit], kept, grad_of_output(unit, slot), buffers_.ws, left,
                          last_grad_);
    } else {
      gpt_.recompute(unit, v.params[unit], kept, buffers_.ws);
    }
    if (halves.weights) gpt_.backward_weights(unit, kept, buffers_.ws, left, v.grads[unit], write);
  }

  void embed_backward(const StageVectors& v, const at::Tensor& tokens, const Slot& slot,
                      Write write) override {
    // The head's part of wte's gradient is on the last stage; with one stage it is here already.
    const bool joint = share_.first && share_.last && share_.layout.config().tied;
    gpt_.embed_backward(tokens, grad_of_input(1, slot), v.grads[0], joint ? Write::accumulate : write, write);
  }

  void head_loss(const StageVectors& v, const at::Tensor& targets, const Slot& slot,
                 at::Tensor& sums) override {
    HeadResult result = result_in(sums);
    gpt_.head_loss(gpt_.head_matrix(v.params[static_cast<std::size_t>(gpt_.head_unit())]), v.params.back(),
                   output(slot), targets, buffers_.ws, result);
  }

  at::Tensor& input(const Slot& slot) override {
    if (slot.input_in_set == kNoBuffer) return buffers_.inputs[static_cast<std::size_t>(slot.input)];
    return buffers_.sets[static_cast<std::size_t>(slot.input_in_set)].x.back();
  }
  [[nodiscard]] at::Tensor& output(const Slot& slot) override { return set(slot).x.back(); }
  [[nodiscard]] at::Tensor& gradient(int of_pool) override { return slab(share_.grad_slab(of_pool)); }
  [[nodiscard]] at::Tensor& sums() override { return buffers_.sums; }
  [[nodiscard]] const at::Tensor& last_gradient() const override { return last_grad_; }
  [[nodiscard]] GptHalves& model() override { return gpt_; }

 private:
  [[nodiscard]] ActivationSet& set(const Slot& slot) {
    return buffers_.sets[static_cast<std::size_t>(slot.set)];
  }
  [[nodiscard]] at::Tensor& slab(int index) { return buffers_.grad_x[static_cast<std::size_t>(index)]; }

  // A chunk with fewer blocks than the largest leaves the first of a set's buffers unused, so that the last
  // buffer always has its output.
  BlockSaved& saved(int unit, const Slot& slot) {
    return set(slot)
        .saved[static_cast<std::size_t>(share_.most_blocks - 1 - (share_.part_of(unit).last() - unit))];
  }

  // The gradient that the next stage sent, or that the head or the block above made. It lies in one of two
  // buffers in turn, or, for a later backward_weights, in a buffer of its own.
  at::Tensor& grad_of_output(int unit, const Slot& slot) {
    const int nth = share_.part_of(unit).last() - unit;
    if (nth == 0 && slot.grad_of_output != kNoBuffer) return gradient(slot.grad_of_output);
    return slab(slot.pending == kNoBuffer ? nth % 2 : share_.pending_slab(slot.pending, nth));
  }

  at::Tensor& grad_of_input(int unit, const Slot& slot) {
    const Part& part = share_.part_of(unit);
    if (unit > part.first) return grad_of_output(unit - 1, slot);
    return slot.grad_of_input != kNoBuffer ? gradient(slot.grad_of_input) : slab(part.blocks % 2);
  }

  const Share& share_;
  Gpt gpt_;
  ActivationBuffers buffers_;
  at::Tensor last_grad_;
};

}  // namespace

std::unique_ptr<Layers> gpt_layers(const RunShape& shape, const Share& share, Ledger& ledger) {
  return std::make_unique<GptLayers>(shape, share, ledger);
}

}  // namespace sc
