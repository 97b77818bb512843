// What lessons 05 and 06 have in common: lesson 04's buffers on the device, under lesson 04's names, and the
// code that tells the host when to update.
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

/// A strategy whose optimizer runs on the host. A lesson derived from it gathers, reduces and copies.
class HostStrategy : public Strategy {
 public:
  [[nodiscard]] at::Tensor& sums() override { return sums_; }
  /// The scalars of a delayed update that is still to come, whose gradients are in state().
  std::string pending() override { return scalars_.pending(clock_, step_); }
  [[nodiscard]] const ParamLayout& layout() const override { return layout_; }

 protected:
  /// Takes the buffers that plan_device has declared in `plan`; the lesson takes the others from buffers_.
  HostStrategy(RunContext& context, const HostOptions& options, const MemoryPlan& plan);

  void wait_gathered(int unit) { gathered_[unit].wait(); }
  void release_params();
  /// Waits until a unit's buffer of gradients is free: what was in it has been summed, and has left for the
  /// host.
  void wait_reduced(int unit);
  /// Computes the squares of a unit's slice, once its gradient is complete.
  void square(int unit);
  /// Adds all units' squares to sums_ in the order of units, in whatever order they were computed.
  void add_squares();
  /// AdamW on the device, for a unit whose states stay there (HostOptions::resident).
  void step_shard(int unit);
  [[nodiscard]] std::span<const OwnedSlice> resident_slices() const {
    return std::span(slices_).first(resident_units_);
  }

  /// Whether all copies of a unit's slice to the device (arriving_) have ended; if so, waits for them.
  [[nodiscard]] bool arrived(int unit);
  void wait_arrived(int unit);
  /// Where a piece lies in this rank's slices on the device.
  [[nodiscard]] at::Tensor params_on_device(const Piece& piece) const {
    return of_slice(piece, &OwnedSlice::params);
  }
  [[nodiscard]] at::Tensor grads_on_device(const Piece& piece) const {
    return of_slice(piece, &OwnedSlice::grads);
  }
  /// The number of updates in the parameters that the coming forward uses.
  [[nodiscard]] std::int64_t due() const { return clock_.due(step_); }

  RunContext& context_;
  PlannedBuffers buffers_;
  ParamLayout layout_;
  Passes passes_;
  /// [4] fp64: loss, tokens, sum of squares, overflow flag.
  at::Tensor sums_;

  /// This rank's slices by unit. A slice's gradient lies in the unit's buffer itself where a step has one
  /// micro-batch and nothing keeps it longer (Keeps::gradients).
  std::vector<OwnedSlice> slices_;
  /// The units' vectors. With parameters=whole every unit has its own buffer for parameters, otherwise blocks
  /// take turns in a pool; for gradients they take turns in two.
  std::vector<UnitTensors> params_full_, grads_full_;
  /// The number of each unit's buffer, by unit.
  std::vector<std::size_t> params_buffer_, grads_buffer_;
  /// The unit whose parameters are in a buffer, or kNoUnit, by buffer.
  std::vector<int> in_buffer_;
  /// The gathers of parameters, and before each the copies of this rank's slice from the host, by unit.
  std::vector<Ticket> gathered_;
  std::vector<std::vector<Ticket>> arriving_;
  /// By buffer of gradients, the sum on its way out of it, and the copies of this rank's slice to the host.
  std::vector<PendingSum> in_flight_;
  std::vector<std::vector<Ticket>> leaving_;
  /// By buffer of gradients, the unit whose sum over the step in_flight_ completes, or kNoUnit.
  std::vector<int> complete_;
  /// By buffer of gradients, where the sums of later micro-batches land before they are added.
  std::vector<at::Tensor> scratch_;
  /// [units + 1, 4] fp64: each unit's sum of squares, and in the last row the numbers that scalars_ sends.
  at::Tensor squares_;

  UpdateScalars scalars_;
  UpdateClock clock_;
  /// The number of the step that runs; between steps that of the coming one.
  std::int64_t step_;

 private:
  [[nodiscard]] at::Tensor of_slice(const Piece& piece, at::Tensor OwnedSlice::*what) const {
    const OwnedSlice& slice = slices_[static_cast<std::size_t>(piece.unit)];
    return (slice.*what).narrow(0, piece.range.begin - slice.range.begin, piece.range.size());
  }

  const std::size_t resident_units_;
};

}  // namespace sc
