// The device side of a strategy whose optimizer runs on the host: units' parameters and gradients while they
// are whole, and this rank's slices of them. Gathers and sums are those of lesson 04; with whole parameters
// every unit has a buffer.
#pragma once

#include <span>
#include <vector>

#include "common/offload/host_plan.h"
#include "common/strategy/owned_slice.h"
#include "common/strategy/strategy.h"

namespace sc {

class UnitBuffers {
 public:
  /// Takes the buffers that plan_device declared.
  UnitBuffers(RunContext& context, PlannedBuffers& buffers, const ParamLayout& layout,
              const HostOptions& options);

  /// The vectors of all units, by unit.
  [[nodiscard]] std::span<const UnitTensors> params() const { return params_; }
  [[nodiscard]] std::span<const UnitTensors> grads() const { return grads_; }
  /// A piece's place in this rank's slice.
  [[nodiscard]] at::Tensor params_of(const Piece& piece) const {
    return of_slice(piece, &OwnedSlice::params);
  }
  [[nodiscard]] at::Tensor grads_of(const Piece& piece) const { return of_slice(piece, &OwnedSlice::grads); }

  /// Whether the unit is in its buffer, or on its way there; and the unit in each buffer, for code that looks
  /// ahead.
  [[nodiscard]] bool in_buffer(int unit) const { return in_buffer_[params_buffer_[unit]] == unit; }
  [[nodiscard]] std::vector<int> in_buffers() const { return in_buffer_; }
  [[nodiscard]] std::size_t params_buffer(int unit) const { return params_buffer_[unit]; }
  /// A copy of a part of this rank's slice is in flight to the device.
  void arrives(int unit, Ticket copy) { arriving_[unit].push_back(std::move(copy)); }
  [[nodiscard]] bool arrived(int unit);
  void wait_arrived(int unit);
  /// The input and output of an all-gather: slice(unit) goes to taken(unit), a buffer that its previous unit
  /// gives up.
  [[nodiscard]] const at::Tensor& slice(int unit) const { return slices_[unit].params; }
  [[nodiscard]] at::Tensor taken(int unit);
  void gathers(int unit, Ticket all_gather) { gathered_[unit] = std::move(all_gather); }
  void wait_gathered(int unit) { gathered_[unit].wait(); }
  /// The buffers' contents are outdated, after an update or an evaluation.
  void release();

  /// Where a reduce-scatter of the unit's gradients writes this rank's sum: its slice. The slice lies inside
  /// the unit's own buffer if a step has one micro-batch and nothing keeps the sum for longer
  /// (Keeps::gradients).
  at::Tensor& sum_of(int unit, Write write);
  void reduces(int unit, Ticket reduce_scatter) {
    in_flight_[grads_buffer_[unit]].ticket = std::move(reduce_scatter);
  }
  void wait_reduced(int unit) { in_flight_[grads_buffer_[unit]].wait(); }
  /// A copy to the host reads the unit's sum. After wait_left() the buffer may be overwritten.
  void leaves(int unit, Ticket copy) { leaving_[grads_buffer_[unit]].push_back(std::move(copy)); }
  void wait_left(int unit);

  /// The slices whose states stay on the device (HostOptions::resident).
  [[nodiscard]] std::span<const OwnedSlice> resident() const { return std::span(slices_).first(resident_); }
  /// Runs AdamW for the resident slices on the device, with the scalars of the norm.
  void step_resident(const RunContext& context, const ParamLayout& layout);

  /// square() sums the squares of a unit's slice, once it is complete. add_squares() adds those of all units
  /// to `sums`, in the order of units, whatever order they were computed in.
  void square(int unit);
  void add_squares(at::Tensor& sums) const;
  /// [4] fp64 from the same allocation, for UpdateScalars.
  [[nodiscard]] at::Tensor scalars() const { return scalars_; }

 private:
  [[nodiscard]] at::Tensor of_slice(const Piece& piece, at::Tensor OwnedSlice::*what) const {
    const OwnedSlice& slice = slices_[static_cast<std::size_t>(piece.unit)];
    return (slice.*what).narrow(0, piece.range.begin - slice.range.begin, piece.range.size());
  }

  Timeline& timeline_;
  std::vector<OwnedSlice> slices_;  // by unit; only resident ones have states
  std::size_t resident_;
  std::vector<UnitTensors> params_, grads_;                // by unit
  std::vector<std::size_t> params_buffer_, grads_buffer_;  // the index of each unit's buffer
  std::vector<int> in_buffer_;                 // for each parameter buffer the unit in it, or none
  std::vector<Ticket> gathered_;               // by unit
  std::vector<std::vector<Ticket>> arriving_;  // by unit: copies from the host
  std::vector<PendingSum> in_flight_;          // by gradient buffer
  std::vector<std::vector<Ticket>> leaving_;   // by gradient buffer: copies to the host
  std::vector<at::Tensor> scratch_;            // by gradient buffer: where sums of later micro-batches arrive
  at::Tensor squares_, scalars_;               // [units, 4] and [4] fp64
};

}  // namespace sc
