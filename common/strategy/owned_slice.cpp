#include "common/strategy/owned_slice.h"

#include <string>

#include "common/optim/grad_norm.h"

namespace sc {

at::Tensor part_of_shard(const ParamLayout& layout, const OwnedSlice& slice, const at::Tensor& shard) {
  const std::int64_t world = to_int(layout.world());
  const std::int64_t before =
      slice.segment == Segment::whole ? layout.arena_size(Segment::sharded).value() / world : 0;
  return shard.narrow(0, before + layout.unit(slice.unit).begin(slice.segment) / world, slice.range.size());
}

OptimizerShard::OptimizerShard(const RunContext& context, Elements elements) {
  const auto fp32 = [&](Purpose purpose, const char* name) {
    return context.ledger.zeros(purpose, name, {elements.value()}, DType::f32);
  };
  if (context.shape.workload.precision.has_master()) master = fp32(Purpose::master, "master_shard");
  momentum = fp32(Purpose::momentum, "momentum_shard");
  variance = fp32(Purpose::variance, "variance_shard");
}

void OptimizerShard::plan(const RunShape& shape, Elements elements, MemoryPlan& plan) {
  const auto fp32 = [&](Purpose purpose, const char* name) {
    plan.add(purpose, name, std::to_string(size_of(DType::f32)) + " P/N", bytes_of(elements, DType::f32));
  };
  if (shape.workload.precision.has_master()) fp32(Purpose::master, "master_shard");
  fp32(Purpose::momentum, "momentum_shard");
  fp32(Purpose::variance, "variance_shard");
}

void take_over(const RunContext& context, const ParamLayout& layout, const OptimizerShard& state,
               OwnedSlice& slice) {
  if (slice.empty()) return;
  const bool has_master = state.master.defined();
  slice.master = has_master ? part_of_shard(layout, slice, state.master) : slice.params;
  slice.momentum = part_of_shard(layout, slice, state.momentum);
  slice.variance = part_of_shard(layout, slice, state.variance);
  init_slice(layout, slice.unit, slice.segment, slice.range, context.shape.workload.seed, slice.master);
  if (has_master) slice.params.copy_(slice.master);
}

at::Tensor zeros_in_window(const RunContext& context, Purpose purpose, const std::string& name,
                           Elements elements, DType dtype) {
  std::shared_ptr<void> memory = context.comm.window(bytes_of(elements, dtype));
  if (!memory) return context.ledger.zeros(purpose, name, {elements.value()}, dtype);
  return context.ledger.adopt(purpose, name, {elements.value()}, dtype, std::move(memory)).zero_();
}

std::vector<at::Tensor> grads_of(std::span<const OwnedSlice> slices) {
  std::vector<at::Tensor> grads;
  for (const OwnedSlice& slice : slices)
    if (!slice.empty()) grads.push_back(slice.grads);
  return grads;
}

void clip_over_ranks(const RunContext& context, at::Tensor& sums) {
  finish_sums(sums);
  context.comm.all_reduce(sums).wait();
  global_norm_and_clip(sums, context.shape.workload.optim.clip, context.scalars);
}

void visit_slice(const OwnedSlice& slice, StateVisitor& visitor) {
  const auto visit = [&](Purpose purpose, const at::Tensor& values) {
    visitor.visit({purpose, slice.unit, slice.segment, slice.range, values});
  };
  if (!slice.master.is_same(slice.params)) visit(Purpose::master, slice.master);
  visit(Purpose::momentum, slice.momentum);
  visit(Purpose::variance, slice.variance);
  visit(Purpose::gradients, slice.grads);
}

}  // namespace sc
