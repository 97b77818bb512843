// What a rank steps: one slice of every unit, or with data parallelism the whole of it. Where the vectors
// lie, and who else has the parameters, is each lesson's own.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "common/memory/planned_buffers.h"
#include "common/strategy/strategy.h"

namespace sc {

/// One rank's slice of one segment of a unit. An empty one has no tensors.
struct OwnedSlice {
  int unit;
  Segment segment = Segment::sharded;
  Range range;                              // elements of the unit's segment
  at::Tensor params = {}, grads = {};       // [range.size()], as all of them
  at::Tensor master = {};                   // fp32; params themselves where those are fp32
  at::Tensor momentum = {}, variance = {};  // fp32
  at::Tensor replica = {};  // the whole segment's parameters, where every rank has them after quiet()
  [[nodiscard]] bool empty() const { return range.size() == 0; }
  /// This slice of a vector that holds the unit's whole segment.
  [[nodiscard]] at::Tensor of_unit(const at::Tensor& whole) const {
    return whole.narrow(0, range.begin, range.size());
  }
};

/// Rank r's slice of a unit's segment; all of it.
OwnedSlice slice_of_rank(const ParamLayout& layout, int unit, Rank rank, Segment segment = Segment::sharded);
OwnedSlice whole_unit(const ParamLayout& layout, int unit);

/// The slice's part of an arena that holds as large a part of every unit: sharded segments' first, unit by
/// unit.
at::Tensor part_of_arena(const ParamLayout& layout, const OwnedSlice& slice, const at::Tensor& arena);

/// AdamW's state of what a rank steps: an fp32 master (beside 16-bit parameters alone) and two moments.
struct OptimizerState {
  /// As plan_optimizer_state has declared it.
  explicit OptimizerState(PlannedBuffers& buffers, const std::string& where = "shard");

  at::Tensor master, momentum, variance;  // master undefined where there is none
};

/// Gives `slice`, whose params are known, its part of the state, and both the seed's first values.
void take_over(const RunContext& context, const ParamLayout& layout, const OptimizerState& state,
               OwnedSlice& slice);

/// AdamW on a slice, with the scalars of the run's step.
void adamw_step(const RunContext& context, const ParamLayout& layout, OwnedSlice& slice);

/// Makes what these ranks gather, or sum too, where the backend has windows for it.  Collective, with equal
/// sizes.
inline MakeMemory window_of(Communicator& ranks, WindowUse use = WindowUse::gathers) {
  return [&ranks, use](Bytes bytes) { return ranks.window(bytes, use); };
}

/// Of all slices that are not empty.
std::vector<at::Tensor> grads_of(std::span<const OwnedSlice> slices);

/// What a strategy's state() is: `last_local` (Passes), then of every slice parameters (the whole segment's
/// where every rank has them), master (if it is no parameter), momentum, variance and gradients.
std::vector<StateSlice> state_of(const StateSlice& last_local, std::span<const OwnedSlice> slices);

/// A sum over ranks on its way to the slice that owns it.
struct PendingSum {
  /// Where reduce_scatter leaves it: in the slice, or with Write::accumulate in `scratch` (at least as long)
  /// first.
  at::Tensor& lands_in(const at::Tensor& slice, const at::Tensor& scratch, Write write);
  /// Afterwards the sum is in the slice, and what it was made from may be overwritten.
  void wait();

  Ticket ticket;
  at::Tensor sum, into;  // `into` undefined: the sum is where it belongs
};

}  // namespace sc
