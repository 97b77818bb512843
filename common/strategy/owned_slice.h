// What a rank updates: one slice of every unit, or with data parallelism all of it. Each lesson decides where
// the vectors lie and which other ranks have the parameters.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "common/memory/planned_buffers.h"
#include "common/strategy/strategy.h"

namespace sc {

/// One rank's slice of one segment of a unit. An empty slice has no tensors.
struct OwnedSlice {
  int unit;
  Segment segment = Segment::sharded;
  Range range;                              // elements of the unit's segment
  at::Tensor params = {}, grads = {};       // [range.size()], as for all tensors here
  at::Tensor master = {};                   // fp32; params itself if params is fp32
  at::Tensor momentum = {}, variance = {};  // fp32
  at::Tensor replica = {};  // the whole segment's parameters, if every rank has them after quiet()
  [[nodiscard]] bool empty() const { return range.size() == 0; }
  /// This slice of a vector that holds the unit's whole segment.
  [[nodiscard]] at::Tensor of_unit(const at::Tensor& whole) const {
    return whole.narrow(0, range.begin, range.size());
  }
};

/// The slice of one rank in a unit's segment; whole_unit: the slice that is all of a unit.
OwnedSlice slice_of_rank(const ParamLayout& layout, int unit, Rank rank, Segment segment = Segment::sharded);
OwnedSlice whole_unit(const ParamLayout& layout, int unit);

/// The slice's part of an arena that holds an equal part of every unit: sharded segments first, unit by unit.
at::Tensor part_of_arena(const ParamLayout& layout, const OwnedSlice& slice, const at::Tensor& arena);

/// AdamW's state for what a rank updates: an fp32 master (with 16-bit parameters only) and two moments.
struct OptimizerState {
  /// Takes the buffers that plan_optimizer_state declared.
  explicit OptimizerState(PlannedBuffers& buffers, const std::string& where = "shard");

  at::Tensor master, momentum, variance;  // undefined if there is no master
};

/// Gives `slice`, whose params are set, its part of the state, and initialises both from the seed.
void take_over(const RunContext& context, const ParamLayout& layout, const OptimizerState& state,
               OwnedSlice& slice);

/// Updates a slice by AdamW, with the scalars of the run's step.
void adamw_step(const RunContext& context, const ParamLayout& layout, OwnedSlice& slice);

/// Allocates tensors that these ranks gather (or sum) in a window, if the backend has windows. Collective,
/// with equal sizes.
inline MakeMemory window_of(Communicator& ranks, WindowUse use = WindowUse::gathers) {
  return [&ranks, use](Bytes bytes) { return ranks.window(bytes, use); };
}

std::vector<at::Tensor> grads_of(std::span<const OwnedSlice> slices);

/// A strategy's state(): `last_local` (Passes), then for every slice parameters (the whole segment's, if
/// every rank has them), master (if there is one besides the parameters), momentum, variance and gradients.
std::vector<StateSlice> state_of(const StateSlice& last_local, std::span<const OwnedSlice> slices);

/// A sum over ranks in flight to the slice that owns it.
struct PendingSum {
  /// Where reduce_scatter writes the sum: the slice itself, or with Write::accumulate `scratch` (at least as
  /// long) first.
  at::Tensor& lands_in(const at::Tensor& slice, const at::Tensor& scratch, Write write);
  /// Waits for the sum, and puts it into the slice; afterwards its inputs may be overwritten.
  void wait();

  Ticket ticket;
  at::Tensor sum, into;  // `into` is undefined if the sum is already in its place
};

}  // namespace sc
