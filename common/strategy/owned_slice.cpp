#include "common/strategy/owned_slice.h"

#include "common/optim/grad_norm.h"

namespace sc {

OwnedSlice slice_of_rank(const ParamLayout& layout, int unit, Rank rank, Segment segment) {
  return {.unit = unit, .segment = segment, .range = layout.slice(unit, segment, rank)};
}

OwnedSlice whole_unit(const ParamLayout& layout, int unit) {
  return {.unit = unit, .range = {0, layout.unit(unit).sharded_size}};
}

at::Tensor part_of_arena(const ParamLayout& layout, const OwnedSlice& slice, const at::Tensor& arena) {
  const UnitLayout& unit = layout.unit(slice.unit);
  // The number of slices of the unit: the world's size, or 1 if the slice is a whole unit.
  const std::int64_t parts = unit.size(slice.segment) / slice.range.size();
  const std::int64_t before =
      slice.segment == Segment::whole ? layout.arena_size(Segment::sharded).value() / parts : 0;
  return arena.narrow(0, before + unit.begin(slice.segment) / parts, slice.range.size());
}

OptimizerState::OptimizerState(PlannedBuffers& buffers, const std::string& where)
    : master(buffers.zeros("master_" + where)),
      momentum(buffers.zeros("momentum_" + where)),
      variance(buffers.zeros("variance_" + where)) {}

void take_over(const RunContext& context, const ParamLayout& layout, const OptimizerState& state,
               OwnedSlice& slice) {
  if (slice.empty()) return;
  const bool has_master = state.master.defined();
  slice.master = has_master ? part_of_arena(layout, slice, state.master) : slice.params;
  slice.momentum = part_of_arena(layout, slice, state.momentum);
  slice.variance = part_of_arena(layout, slice, state.variance);
  init_slice(layout, slice.unit, slice.segment, slice.range, context.shape.workload.seed, slice.master);
  if (has_master) slice.params.copy_(slice.master);
}

void adamw_step(const RunContext& context, const ParamLayout& layout, OwnedSlice& s) {
  const Workload& w = context.shape.workload;
  adamw_step(hyper_of(w.optim), context.scalars, layout.decay_ranges(s.unit, s.segment, s.range), s.grads,
             s.master, s.momentum, s.variance, w.precision.has_master() ? &s.params : nullptr);
}

std::vector<at::Tensor> grads_of(std::span<const OwnedSlice> slices) {
  std::vector<at::Tensor> grads;
  for (const OwnedSlice& slice : slices)
    if (!slice.empty()) grads.push_back(slice.grads);
  return grads;
}

std::vector<StateSlice> state_of(const StateSlice& last_local, std::span<const OwnedSlice> slices) {
  std::vector<StateSlice> state = {last_local};
  for (const OwnedSlice& slice : slices) {
    if (slice.empty()) continue;
    const auto add = [&](Purpose purpose, Range range, const at::Tensor& values) {
      state.push_back({purpose, slice.unit, slice.segment, range, in_tensor(values)});
    };
    if (slice.replica.defined()) {
      add(Purpose::parameters, {0, slice.replica.numel()}, slice.replica);
    } else {
      add(Purpose::parameters, slice.range, slice.params);
    }
    if (!slice.master.is_same(slice.params)) add(Purpose::master, slice.range, slice.master);
    add(Purpose::momentum, slice.range, slice.momentum);
    add(Purpose::variance, slice.range, slice.variance);
    add(Purpose::gradients, slice.range, slice.grads);
  }
  return state;
}

at::Tensor& PendingSum::lands_in(const at::Tensor& slice, const at::Tensor& scratch, Write write) {
  const bool adds = write == Write::accumulate;
  sum = adds ? scratch.narrow(0, 0, slice.numel()) : slice;
  into = adds ? slice : at::Tensor();
  return sum;
}

void PendingSum::wait() {
  ticket.wait();
  if (into.defined()) into.add_(sum);
  into = at::Tensor();
}

}  // namespace sc
