// The device's half of a strategy whose optimizer runs on the host: units' parameters and gradients while
// they are whole, and this rank's slices of them. Gathers and sums are lesson 04's, or with whole parameters
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
  /// As plan_device has declared it.
  UnitBuffers(RunContext& context, PlannedBuffers& buffers, const ParamLayout& layout,
              const HostOptions& options);

  /// By unit.
  [[nodiscard]] std::span<const UnitTensors> params() const { return params_; }
  [[nodiscard]] std::span<const UnitTensors> grads() const { return grads_; }
  /// A piece's place in this rank's slice.
  [[nodiscard]] at::Tensor params_of(const Piece& piece) const {
    return of_slice(piece, &OwnedSlice::params);
  }
  [[nodiscard]] at::Tensor grads_of(const Piece& piece) const { return of_slice(piece, &OwnedSlice::grads); }

  /// Whether the unit is in its buffer, or on its way there; by buffer, for those who look ahead.
  [[nodiscard]] bool in_buffer(int unit) const { return in_buffer_[params_buffer_[unit]] == unit; }
  [[nodiscard]] std::vector<int> in_buffers() const { return in_buffer_; }
  [[nodiscard]] std::size_t params_buffer(int unit) const { return params_buffer_[unit]; }
  /// A copy of a part of this rank's slice is on its way to the device.
  void arrives(int unit, Ticket copy) { arriving_[unit].push_back(std::move(copy)); }
  [[nodiscard]] bool arrived(int unit);
  void wait_arrived(int unit);
  /// An all-gather of slice(unit) goes into taken(unit), the buffer that whoever was in it gives up.
  [[nodiscard]] const at::Tensor& slice(int unit) const { return slices_[unit].params; }
  [[nodiscard]] at::Tensor taken(int unit);
  void gathers(int unit, Ticket all_gather) { gathered_[unit] = std::move(all_gather); }
  void wait_gathered(int unit) { gathered_[unit].wait(); }
  /// What is in the buffers is from before the update, or from an evaluation.
  void release();

  /// Where a reduce-scatter of the unit's gradients leaves this rank's sum: in its slice. That lies in the
  /// unit's buffer itself where a step has one micro-batch and nothing keeps it longer (Keeps::gradients).
  at::Tensor& sum_of(int unit, Write write);
  void reduces(int unit, Ticket reduce_scatter) {
    in_flight_[grads_buffer_[unit]].ticket = std::move(reduce_scatter);
  }
  void wait_reduced(int unit) { in_flight_[grads_buffer_[unit]].wait(); }
  /// A copy to the host reads the unit's sum. After wait_left() its buffer may be written again.
  void leaves(int unit, Ticket copy) { leaving_[grads_buffer_[unit]].push_back(std::move(copy)); }
  void wait_left(int unit);

  /// The slices whose states stay on the device (HostOptions::resident).
  [[nodiscard]] std::span<const OwnedSlice> resident() const { return std::span(slices_).first(resident_); }
  /// AdamW of those, on the device, with the scalars that the norm left.
  void step_resident(const RunContext& context, const ParamLayout& layout);

  /// The sum of a slice's squares, once it is complete; and those of all units onto `sums`, in the order of
  /// units, whatever the order in which they came.
  void square(int unit);
  void add_squares(at::Tensor& sums) const;
  /// [4] fp64 of the same allocation, for UpdateScalars.
  [[nodiscard]] at::Tensor scalars() const { return scalars_; }

 private:
  [[nodiscard]] at::Tensor of_slice(const Piece& piece, at::Tensor OwnedSlice::*what) const {
    const OwnedSlice& slice = slices_[static_cast<std::size_t>(piece.unit)];
    return (slice.*what).narrow(0, piece.range.begin - slice.range.begin, piece.range.size());
  }

  Timeline& timeline_;
  std::vector<OwnedSlice> slices_;  // by unit; states of the resident ones alone
  std::size_t resident_;
  std::vector<UnitTensors> params_, grads_;                // by unit
  std::vector<std::size_t> params_buffer_, grads_buffer_;  // by unit: which buffer
  std::vector<int> in_buffer_;                 // by buffer of parameters: the unit that is in it, or none
  std::vector<Ticket> gathered_;               // by unit
  std::vector<std::vector<Ticket>> arriving_;  // the same: copies from the host
  std::vector<PendingSum> in_flight_;          // by buffer of gradients
  std::vector<std::vector<Ticket>> leaving_;   // the same: copies to the host
  std::vector<at::Tensor> scratch_;            // the same: where later micro-batches' sums land
  at::Tensor squares_, scalars_;               // [units, 4] and [4] fp64
};

}  // namespace sc
