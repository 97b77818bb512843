// A stage's part of the model: its vectors and buffers, forward and backward, no messages.
#pragma once

#include <utility>
#include <vector>

#include "common/model/activation_buffers.h"
#include "common/pipeline/share.h"
#include "common/strategy/owned_slice.h"

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

class Stage {
 public:
  /// Bytes: plan_stage.
  Stage(const RunContext& context, const Share& share);
  /// Forward and backward of nothing, before the first message. Gradients and activations hold numbers
  /// afterwards that the first micro-batch overwrites.
  void warm_up(const BatchConfig& batch);

  /// Forward and backward read this version of the parameters from here on: the buffer of a slot's `weights`.
  void load_params(int buffer) { loaded_buffer_ = static_cast<std::size_t>(buffer); }
  /// The blocks of a position, on what `slot` names; the first one embeds the tokens.
  void forward(int position, const at::Tensor& tokens, const Slot& slot);
  /// The head is the beginning of backward: loss and tokens onto `sums`, the gradient of the last block's
  /// output. scale: [] fp32, of the loss.
  void head(const at::Tensor& targets, const at::Tensor& scale, const Slot& slot, Write write,
            at::Tensor& sums);
  /// Of a block, from a position's last one down. With inputs alone slot.pending keeps what the weights need.
  void backward(int unit, const Slot& slot, Write write, Halves halves);
  /// After block 1's.
  void embed_backward(const at::Tensor& tokens, const Slot& slot, Write write);
  /// Loss and tokens of the last position's output.
  void head_loss(const at::Tensor& targets, const Slot& slot, at::Tensor& sums);

  [[nodiscard]] at::Tensor& input(const Slot& slot);
  [[nodiscard]] at::Tensor& output(const Slot& slot) { return set(slot).x.back(); }
  [[nodiscard]] at::Tensor& grad(int of_pool) { return slab(share_.grad_slab(of_pool)); }
  [[nodiscard]] at::Tensor sums() const { return buffers_.sums; }
  [[nodiscard]] StateSlice last_local() const;
  /// What all replicas of this stage have of a unit.
  struct Held {
    int unit = 0;
    bool copy = false;                               // of unit 0, for the head
    at::Tensor params = {}, grads = {};              // the whole of it
    at::Tensor params_slice = {}, grads_slice = {};  // this replica's; where states are whole, all of it
    OwnedSlice own = {.unit = 0, .range = {}};       // what this replica steps of that
  };
  /// Units in order, then the tied copy. Parameters are those of the newest version.
  [[nodiscard]] std::vector<Held>& held() { return held_; }
  /// The newest version of the parameters goes on in the buffer `to` (Slot::weights_out), where a step then
  /// writes it. Without a master, whose rounding a step writes, it is copied there first.
  void move_newest(int to);
  [[nodiscard]] std::vector<OwnedSlice> slices() const;
  /// This stage's parameters as another buffer has them, by unit; flat.
  [[nodiscard]] std::vector<std::pair<int, at::Tensor>> params_in(int buffer) const;
  /// wte's part of what this replica owns, of unit 0 or of its copy: the gradient. Undefined: none.
  [[nodiscard]] at::Tensor tied_grad() const;

 private:
  [[nodiscard]] ActivationSet& set(const Slot& slot) {
    return buffers_.sets[static_cast<std::size_t>(slot.set)];
  }
  [[nodiscard]] BlockSaved& saved(int unit, const Slot& slot);
  [[nodiscard]] at::Tensor& grad_of_output(int unit, const Slot& slot);
  [[nodiscard]] at::Tensor& grad_of_input(int unit, const Slot& slot);
  [[nodiscard]] at::Tensor& slab(int index) { return buffers_.grad_x[static_cast<std::size_t>(index)]; }
  [[nodiscard]] std::vector<UnitTensors> units_of(const at::Tensor& arena) const;
  [[nodiscard]] const std::vector<UnitTensors>& params() const { return params_[loaded_buffer_]; }
  void hold_params(Held& held, int version) const;

  const Share& share_;
  Gpt gpt_;
  ActivationBuffers buffers_;
  std::vector<at::Tensor> versions_;              // of the parameters: a buffer each
  std::vector<std::vector<UnitTensors>> params_;  // the same, by unit; undefined where this stage has none
  std::vector<UnitTensors> grads_;                // by unit
  int newest_buffer_ = 0;                         // of versions_: the one that a step writes
  std::size_t loaded_buffer_ = 0;                 // the one that is read
  bool has_master_ = false;
  std::vector<Held> held_;
  at::Tensor last_grad_;
};

}  // namespace sc
