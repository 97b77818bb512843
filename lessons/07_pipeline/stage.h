// A stage's part of the model: its vectors and buffers, forward and backward of one chunk, no messages.
#pragma once

#include <functional>
#include <vector>

#include "common/strategy/owned_slice.h"
#include "common/strategy/passes.h"
#include "share.h"

namespace sc {

class Stage {
 public:
  Stage(const RunContext& context, const Share& share);
  /// What the constructor takes from the ledger.
  static void plan(const RunShape& shape, const Share& share, MemoryPlan& plan);

  /// Blocks of the action's chunk, on what `slot` names; the first position embeds.
  void forward(int position, const Batch& batch, const Slot& slot);
  /// Gradients of what forward read. `done(unit)`: that unit's gradient is complete for this micro-batch.
  /// With slot.pending the weights are left to backward_weights. `before_output()` is called right before the
  /// gradient that slot.grad_out names is written, which is the last thing that backward does.
  void backward(int position, const Batch& batch, const Slot& slot, Write write, at::Tensor& sums,
                const std::function<void(int unit)>& done, const std::function<void()>& before_output);
  void backward_weights(int position, const Slot& slot, Write write,
                        const std::function<void(int unit)>& done);
  /// Loss and tokens of the last position's output.
  void head_loss(const Batch& batch, const Slot& slot, at::Tensor& sums);

  [[nodiscard]] at::Tensor& input(const Slot& slot);
  [[nodiscard]] at::Tensor& output(int set);
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
  /// The newest version of the parameters goes on in the buffer `to` (Slot::weights_out), where a step then writes
  /// it. Without a master, whose rounding a step writes, it is copied there first.
  void move_newest(int to);
  [[nodiscard]] std::vector<OwnedSlice> slices() const;
  /// This stage's parameters as another buffer has them, by unit; flat.
  [[nodiscard]] std::vector<std::pair<int, at::Tensor>> params_in(int buffer) const;
  /// wte's part of what this replica owns, of unit 0 or of its copy: the gradient. Undefined: none.
  [[nodiscard]] at::Tensor tied_grad() const;

 private:
  [[nodiscard]] at::Tensor& slab(int index) { return buffers_.grad_x[static_cast<std::size_t>(index)]; }
  [[nodiscard]] std::vector<UnitTensors> units_of(const at::Tensor& arena) const;
  [[nodiscard]] const std::vector<UnitTensors>& params(const Slot& slot) const {
    return params_[static_cast<std::size_t>(slot.weights)];
  }
  at::Tensor& grad_of_output(int position, const Batch& batch, const Slot& slot, Write write,
                             at::Tensor& sums);
  void hold_params(Held& held, int version) const;

  const Share& share_;
  Gpt gpt_;
  ActivationBuffers buffers_;
  std::vector<at::Tensor> versions_;              // of the parameters: a buffer each
  std::vector<std::vector<UnitTensors>> params_;  // the same, by unit; undefined where this stage has none
  std::vector<UnitTensors> grads_;                // by unit
  int newest_ = 0;
  bool has_master_ = false;
  std::vector<Held> held_;
  at::Tensor last_grad_;
};

}  // namespace sc
