// The slices of a model that a rank owns: it alone steps them (02). Where their vectors lie, and who else has
// the parameters, is each lesson's own.
#pragma once

#include <span>
#include <vector>

#include "common/strategy/strategy.h"

namespace sc {

/// One rank's slice of one segment of a unit. An empty one has no tensors.
struct OwnedSlice {
  int unit;
  Segment segment;
  Range range;                              // elements of the unit's segment
  at::Tensor params = {}, grads = {};       // [range.size()], as all of them
  at::Tensor master = {};                   // fp32; params themselves where those are fp32
  at::Tensor momentum = {}, variance = {};  // fp32
  [[nodiscard]] bool empty() const { return range.size() == 0; }
  /// This slice of a vector that holds the unit's whole segment.
  [[nodiscard]] at::Tensor of_unit(const at::Tensor& whole) const {
    return whole.narrow(0, range.begin, range.size());
  }
};

/// The slice's part of a shard, the vector of all slices of a rank: sharded segments' first, unit by unit.
at::Tensor part_of_shard(const ParamLayout& layout, const OwnedSlice& slice, const at::Tensor& shard);

/// AdamW's state of a rank's slices, from the ledger: an fp32 master (beside 16-bit parameters alone) and two
/// moments, `elements` each.
struct OptimizerShard {
  OptimizerShard(const RunContext& context, Elements elements);
  static void plan(const RunShape& shape, Elements elements, MemoryPlan& plan);

  at::Tensor master, momentum, variance;  // master undefined where there is none
};

/// Gives `slice`, whose params are known, its part of the state, and both the seed's first values.
void take_over(const RunContext& context, const ParamLayout& layout, const OptimizerShard& state,
               OwnedSlice& slice);

/// A flat tensor of zeros for all_gathers, from the ledger, in a window where the backend has such
/// (Communicator::window).  Collective, with equal `elements`.
at::Tensor zeros_in_window(const RunContext& context, Purpose purpose, const std::string& name,
                           Elements elements, DType dtype);

/// Of all slices that are not empty.
std::vector<at::Tensor> grads_of(std::span<const OwnedSlice> slices);

/// The end of every global norm: `sums`, onto which this rank's squares have been added, are summed over
/// ranks and become the clip factor.
///   Cost  one all-reduce of four numbers, which is waited for.
void clip_over_ranks(const RunContext& context, at::Tensor& sums);

/// Master (if it is no parameter), momentum, variance and gradients.
void visit_slice(const OwnedSlice& slice, StateVisitor& visitor);

}  // namespace sc
