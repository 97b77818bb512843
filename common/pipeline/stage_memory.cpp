// Takes a stage's buffers from the ledger, as planned by plan_stage.
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "common/pipeline/stage.h"

namespace sc {

Stage::Stage(const RunContext& context, const Share& share, std::unique_ptr<Layers> layers)
    : share_(share), layers_(layers ? std::move(layers) : gpt_layers(context.shape, share, context.ledger)) {
  MemoryPlan plan;
  plan_stage_states(context.shape, share, plan);
  PlannedBuffers buffers(context.ledger, plan);
  versions_.push_back(buffers.zeros("params_stage"));
  if (const at::Tensor older = buffers.zeros("params_stage, older"); older.defined())
    for (const at::Tensor& version : older.view({-1, share.elements.value()}).unbind())
      versions_.push_back(version);
  for (const at::Tensor& version : versions_) params_.push_back(units_of(version));
  const at::Tensor grads_arena = buffers.zeros("grads_stage");
  grads_ = units_of(grads_arena);
  whole_grads_ = grads_arena.narrow(0, share.whole.begin, share.whole.size());
  const OptimizerState state(buffers, share.shards > 1 ? "shard" : "stage");
  has_master_ = state.master.defined();
  // [anchor: a-replicas-slice]
  // A replica holds the states of each unit whole, or 1/R of them: lesson 02's slice, over the replicas of
  // one stage.
  const auto hold = [&](int unit, Segment segment, std::int64_t begin, bool copy) {
    const at::Tensor grads = grads_[static_cast<std::size_t>(unit)].segment(segment);
    const std::int64_t part = grads.numel() / share.shards,
                       first = share.shards > 1 ? share.replica * part : 0;
    Held held{.unit = unit, .segment = segment, .copy = copy, .grads = grads};
    held.grads_slice = grads.narrow(0, first, part);
    OwnedSlice& own = held.own = {.unit = unit, .segment = segment, .range = {first, first + part}};
    if (copy) own.range.end = std::max(first, std::min(own.range.end, share.tied));  // the copy has wte alone
    const auto of = [&](const at::Tensor& of_arena, std::int64_t at) {
      return of_arena.narrow(0, at, own.range.size());
    };
    hold_params(held, 0);
    if (!own.empty()) {
      own.grads = of(held.grads_slice, 0);
      own.master = has_master_ ? of(state.master, begin / share.shards) : own.params;
      own.momentum = of(state.momentum, begin / share.shards),
      own.variance = of(state.variance, begin / share.shards);
      // The initial weights are a function of seed, name and element, so every stage has the same bits as
      // lesson 00, and the copy those of wte.
      init_slice(share.layout, unit, own.segment, own.range, context.shape.workload.seed, own.master);
      if (has_master_) own.params.copy_(own.master);
    }
    held_.push_back(std::move(held));
  };
  for (int unit = 0; unit < share.layout.num_units(); ++unit) {
    if (share.begin(unit) < 0) continue;
    for (const Segment segment : {Segment::sharded, Segment::whole})
      if (share.layout.unit(unit).size(segment) > 0) hold(unit, segment, share.begin(unit, segment), false);
  }
  if (share.tied_copy > 0) hold(0, Segment::sharded, share.elements.value() - share.tied_copy, true);
}

// On a GPU the first use of an operation sets up its library, which waits for all work on the device,
// including a posted receive. If that message is sent only after this stage's answer, as in the schedule
// naive, both stages would wait for ever.
void Stage::warm_up(const BatchConfig& b) {
  const int stages = share_.schedule.stages;
  const auto on_device = sums().options();
  if (!on_device.device().is_cuda() || stages == 1) return;
  const at::Tensor tokens = at::zeros({b.micro, b.sequence}, on_device.dtype(at::kLong)),
                   scale = at::zeros({}, on_device.dtype(at::kFloat));
  at::Tensor sums = at::zeros({4}, on_device);
  const Pools& pools = share_.slots.pools;
  for (int position = share_.stage; position < share_.schedule.positions(); position += stages) {
    const Part& part = share_.part(position);
    Slot slot{.set = 0, .input = 0};
    if (!share_.has_head(position)) slot.grad_of_output = 0;
    if (!share_.embeds(position)) slot.grad_of_input = pools.grads - 1;
    if (pools.pending > 0) slot.pending = 0;
    forward(position, tokens, slot);
    for (const Write write : {Write::overwrite, Write::accumulate}) {
      if (share_.has_head(position)) head(tokens, scale, slot, write, sums);
      const auto blocks = [&](Halves halves) {
        for (int unit = part.last(); unit >= part.first; --unit) backward(unit, slot, write, halves);
      };
      blocks({.weights = slot.pending == kNoBuffer});
      if (share_.embeds(position)) embed_backward(tokens, slot, write);
      if (slot.pending != kNoBuffer) blocks({.inputs = false});
    }
  }
}

void Stage::hold_params(Held& held, int version) const {
  OwnedSlice& own = held.own;
  const std::int64_t part = held.grads_slice.numel();
  held.params =
      params_[static_cast<std::size_t>(version)][static_cast<std::size_t>(held.unit)].segment(held.segment);
  held.params_slice = held.params.narrow(0, own.range.begin, part);
  if (own.empty()) return;
  own.params = held.params_slice.narrow(0, 0, own.range.size());
  if (share_.shards > 1) own.replica = held.copy ? held.params.narrow(0, 0, share_.tied) : held.params;
}

std::vector<UnitTensors> Stage::units_of(const at::Tensor& arena) const {
  std::vector<UnitTensors> units(static_cast<std::size_t>(share_.layout.num_units()));
  for (int unit = 0; unit < share_.layout.num_units(); ++unit) {
    if (share_.begin(unit) < 0) continue;
    UnitTensors& of = units[static_cast<std::size_t>(unit)];
    const UnitLayout& layout = share_.layout.unit(unit);
    of.sharded = arena.narrow(0, share_.begin(unit), layout.sharded_size);
    if (layout.whole_size > 0)
      of.whole = arena.narrow(0, share_.begin(unit, Segment::whole), layout.whole_size);
  }
  if (share_.tied_copy > 0)
    units[0].sharded = arena.narrow(0, arena.numel() - share_.tied_copy, share_.tied_copy);
  return units;
}

}  // namespace sc
