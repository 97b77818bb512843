// What lessons 05 and 06 have alike: lesson 04's buffers on the device, by lesson 04's names, and what tells
// the host when to update.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "common/offload/host_plan.h"
#include "common/offload/update_clock.h"
#include "common/offload/update_scalars.h"
#include "common/strategy/owned_slice.h"
#include "common/strategy/passes.h"

namespace sc {

/// A strategy whose optimizer runs on the host. A lesson derives from it, and gathers, reduces and copies
/// itself.
class HostStrategy : public Strategy {
 public:
  [[nodiscard]] at::Tensor& sums() override { return sums_; }
  /// A delayed update that is still to come: its gradients are in state(), its scalars here.
  std::string pending() override { return scalars_.pending(clock_, step_); }
  [[nodiscard]] const ParamLayout& layout() const override { return layout_; }

 protected:
  /// plan: plan_device has declared what this takes of it; the lesson takes the rest from buffers_.
  HostStrategy(RunContext& context, const HostOptions& options, const MemoryPlan& plan);

  void wait_gathered(int unit) { gathered_[unit].wait(); }
  void release_params();
  /// Afterwards the unit's buffer of gradients is free: what was in it has been summed, and has left for the
  /// host.
  void wait_reduced(int unit);
  /// The sum of a slice's squares, once its gradient is complete.
  void square(int unit);
  /// Those of all units onto sums_, in the order of units, whatever the order in which they came.
  void add_squares();
  /// AdamW on the device, of a unit whose states stay there (HostOptions::resident).
  void step_shard(int unit);
  [[nodiscard]] std::span<const OwnedSlice> resident_slices() const {
    return std::span(slices_).first(resident_units_);
  }

  /// Whether all copies to the device that arriving_ has of a unit have ended; waits for them.
  [[nodiscard]] bool arrived(int unit);
  void wait_arrived(int unit);
  /// A piece's place in this rank's slice on the device.
  [[nodiscard]] at::Tensor params_on_device(const Piece& piece) const {
    return of_slice(piece, &OwnedSlice::params);
  }
  [[nodiscard]] at::Tensor grads_on_device(const Piece& piece) const {
    return of_slice(piece, &OwnedSlice::grads);
  }
  /// The number of updates that the coming forward's parameters have seen.
  [[nodiscard]] std::int64_t due() const { return clock_.due(step_); }

  RunContext& context_;
  PlannedBuffers buffers_;
  ParamLayout layout_;
  Passes passes_;
  /// [4] fp64: loss, tokens, sum of squares, overflow flag.
  at::Tensor sums_;

  /// By unit. A slice's gradient lies in the unit's buffer itself where a step has one micro-batch and
  /// nothing keeps it longer (Keeps::gradients).
  std::vector<OwnedSlice> slices_;
  /// Each by unit. With parameters=whole every unit has a buffer for its parameters, otherwise blocks take
  /// turns in a pool; for gradients they take turns in two.
  std::vector<UnitTensors> params_full_, grads_full_;
  /// By unit: the number of its buffer.
  std::vector<std::size_t> params_buffer_, grads_buffer_;
  /// By buffer of parameters: the unit whose parameters are in it, or kNoUnit.
  std::vector<int> in_buffer_;
  /// By unit: the gather of its parameters, and before it the copies of this rank's slice from the host.
  std::vector<Ticket> gathered_;
  std::vector<std::vector<Ticket>> arriving_;
  /// By buffer of gradients: the sum that is on its way out of it, and the copies of this rank's slice to the
  /// host.
  std::vector<PendingSum> in_flight_;
  std::vector<std::vector<Ticket>> leaving_;
  /// By buffer of gradients: the unit whose step's sum in_flight_ completes, or kNoUnit.
  std::vector<int> complete_;
  /// By buffer of gradients: where the sums of later micro-batches land before they are added.
  std::vector<at::Tensor> scratch_;
  /// [units + 1, 4] fp64: each unit's sum of squares, and in the last row the numbers that scalars_ sends.
  at::Tensor squares_;

  UpdateScalars scalars_;
  UpdateClock clock_;
  /// The step that runs; between steps the coming one.
  std::int64_t step_;

 private:
  [[nodiscard]] at::Tensor of_slice(const Piece& piece, at::Tensor OwnedSlice::*what) const {
    const OwnedSlice& slice = slices_[static_cast<std::size_t>(piece.unit)];
    return (slice.*what).narrow(0, piece.range.begin - slice.range.begin, piece.range.size());
  }

  const std::size_t resident_units_;
};

}  // namespace sc
