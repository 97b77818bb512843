// A stage's part of the model: its vectors, and the layers that compute with them. No messages.
#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "common/pipeline/layers.h"
#include "common/strategy/owned_slice.h"

namespace sc {

class Stage {
 public:
  /// Takes the buffers of plan_stage; makes gpt_layers if `layers` is null.
  Stage(const RunContext& context, const Share& share, std::unique_ptr<Layers> layers = nullptr);
  /// Runs forward and backward once, before the first message. Gradients and activations then hold numbers
  /// that the first micro-batch overwrites.
  void warm_up(const BatchConfig& batch);

  /// Selects the version of the parameters for forward and backward: the buffer Slot::weights.
  void load_params(int buffer) { loaded_buffer_ = static_cast<std::size_t>(buffer); }
  // The functions of Layers, with this stage's vectors.
  void forward(int position, const at::Tensor& tokens, const Slot& slot) {
    layers_->forward(vectors(), position, tokens, slot);
  }
  void head(const at::Tensor& targets, const at::Tensor& scale, const Slot& slot, Write write,
            at::Tensor& sums) {
    layers_->head(vectors(), targets, scale, slot, write, sums);
  }
  void backward(int unit, const Slot& slot, Write write, Halves halves) {
    layers_->backward(vectors(), unit, slot, write, halves);
  }
  void embed_backward(const at::Tensor& tokens, const Slot& slot, Write write) {
    layers_->embed_backward(vectors(), tokens, slot, write);
  }
  void head_loss(const at::Tensor& targets, const Slot& slot, at::Tensor& sums) {
    layers_->head_loss(vectors(), targets, slot, sums);
  }
  [[nodiscard]] at::Tensor& input(const Slot& slot) { return layers_->input(slot); }
  [[nodiscard]] at::Tensor& output(const Slot& slot) { return layers_->output(slot); }
  [[nodiscard]] at::Tensor& grad(int of_pool) { return layers_->gradient(of_pool); }
  [[nodiscard]] at::Tensor& sums() { return layers_->sums(); }

  [[nodiscard]] StateSlice last_local() const;
  /// A segment of a unit as all replicas of this stage have it.
  struct Held {
    int unit = 0;
    Segment segment = Segment::sharded;
    bool copy = false;                   // the copy of unit 0 for the head
    at::Tensor params = {}, grads = {};  // of the whole segment
    // What this replica owns of the segment: its slices, or all of it if states are not cut.
    at::Tensor params_slice = {}, grads_slice = {};
    OwnedSlice own = {.unit = 0, .range = {}};  // what this replica updates
    Ticket reduced = {}, published = {};        // the gradient's sum and the parameters, on their way
    /// Whether the segment begins with the embedding's matrix.
    [[nodiscard]] bool has_wte() const { return unit == 0 && segment == Segment::sharded; }
  };
  /// All segments with the newest parameters, in the order of units; the copy of a tied matrix comes last.
  [[nodiscard]] std::vector<Held>& held() { return held_; }
  /// The segments whose gradients are complete after a micro-batch's backward of this unit: the unit's own
  /// and, with the head, the tied copy.
  [[nodiscard]] std::span<Held> completed_by(int unit);
  /// The gradients of all units' whole segments, in one piece: what every tensor rank has.
  [[nodiscard]] at::Tensor& whole_grads() { return whole_grads_; }
  /// Moves the newest version of the parameters to the buffer `to` (Slot::next_weights), where the next step
  /// writes it. Copies its values too if there is no master, from which a step would write all of them.
  void move_newest(int to);
  [[nodiscard]] std::vector<OwnedSlice> slices() const;
  /// This stage's parameters in one of its buffers, as flat vectors by unit.
  [[nodiscard]] std::vector<std::pair<int, at::Tensor>> params_in(int buffer) const;
  /// The gradient of wte in what this replica owns of unit 0 or of its copy; undefined if it owns none of it.
  [[nodiscard]] at::Tensor tied_grad() const;

 private:
  [[nodiscard]] std::vector<UnitTensors> units_of(const at::Tensor& arena) const;
  [[nodiscard]] StageVectors vectors() const { return {params_[loaded_buffer_], grads_}; }
  void hold_params(Held& held, int version) const;

  const Share& share_;
  std::unique_ptr<Layers> layers_;
  std::vector<at::Tensor> versions_;              // of the parameters, one buffer each
  std::vector<std::vector<UnitTensors>> params_;  // the same by unit; undefined for units of other stages
  at::Tensor whole_grads_;
  std::vector<UnitTensors> grads_;  // by unit
  int newest_buffer_ = 0;           // index into versions_ of the one that a step writes
  std::size_t loaded_buffer_ = 0;   // index of the one that is read
  bool has_master_ = false;
  std::vector<Held> held_;
};

/// Checks that a segment's first `elements` parameters are bit-equal on all ranks of a group. Collective.
///   Errors  ClaimError.
void require_equal_copies(Communicator& group, const Stage::Held& held, std::int64_t elements,
                          std::int64_t step);

}  // namespace sc
