// The buffers of lesson 04, taken from the ledger as zero3_plan.cpp has declared them.
#include "common/strategy/pool_gathers.h"
#include "zero3.h"
#include "zero3_buffers.h"

namespace sc {
namespace {

// Neighbours form a group, so that what they gather and sum in every pass stays near. Replicas are far apart,
// and meet once per step.
std::unique_ptr<Communicator> neighbours_of(const RunContext& context, const Sharing& sharing) {
  if (sharing.replicas == 1) return nullptr;
  return context.comm.split(static_cast<int>(to_int(context.comm.rank())) / sharing.shards);
}
std::unique_ptr<Communicator> replicas_of(const RunContext& context, const Sharing& sharing) {
  if (sharing.replicas == 1) return nullptr;
  return context.comm.split(static_cast<int>(to_int(context.comm.rank())) % sharing.shards);
}

}  // namespace

Zero3::Zero3(RunContext& context, const Options& options)
    : context_(context),
      options_(options),
      layout_(layout_of(context.shape, options)),
      passes_(context, layout_),
      group_(neighbours_of(context, Sharing(context.shape, options))),
      replicas_(replicas_of(context, Sharing(context.shape, options))),
      shards_(group_ ? *group_ : context.comm),
      sums_(passes_.sums()),
      gathered_(static_cast<std::size_t>(layout_.num_units())),
      published_(static_cast<std::size_t>(layout_.num_units())),
      in_flight_(2 + kGradPool),
      complete_(in_flight_.size(), kNoUnit),
      scratch_(in_flight_.size()) {
  PlannedBuffers buffers(context.ledger, Plans(options).memory_plan(context.shape));
  const MakeMemory window = window_of(shards_);
  // [anchor: everything-sharded]
  const at::Tensor params_shard = buffers.zeros("params_shard", window);
  const at::Tensor params_whole = buffers.zeros("params_whole");
  const at::Tensor grads_shard = buffers.zeros("grads_shard");
  const OptimizerState state(buffers);

  // Parameters that are gathered and gradients that backward computes are whole for a moment. The first unit
  // of a buffer takes it; the others of its pool find it there.
  const int pool = pool_of(layout_, options);
  const std::int64_t shards = to_int(shards_.size());
  const auto part = [](const at::Tensor& of, std::int64_t begin, std::int64_t n) {
    return n == 0 ? at::Tensor() : of.narrow(0, begin, n);
  };
  std::vector<at::Tensor> params(static_cast<std::size_t>(2 + pool)), grads(in_flight_.size());
  in_buffer_.assign(params.size(), kNoUnit);
  for (int unit = 0; unit < layout_.num_units(); ++unit) {
    const UnitLayout& u = layout_.unit(unit);
    params_buffer_.push_back(buffer_of(layout_, pool, unit));
    grads_buffer_.push_back(buffer_of(layout_, kGradPool, unit));
    const std::size_t b = grads_buffer_.back();
    at::Tensor& p = params[params_buffer_.back()];
    at::Tensor& g = grads[b];
    if (!p.defined()) p = buffers.zeros(name_of_buffer("params_full", params_buffer_.back()), window);
    if (!g.defined()) {
      g = buffers.zeros(name_of_buffer("grads_full", b));
      if (const at::Tensor beside = buffers.zeros(name_of_buffer("grads_scratch", b)); beside.defined()) {
        const std::int64_t sharded = u.sharded_size / shards;
        scratch_[b] = {part(beside, 0, sharded), part(beside, sharded, u.whole_size / shards)};
      }
    }
    params_full_.push_back({part(p, 0, u.sharded_size), part(params_whole, u.whole_begin, u.whole_size)});
    grads_full_.push_back({part(g, 0, u.sharded_size), part(g, u.sharded_size, u.whole_size)});
    for (const Segment segment : {Segment::sharded, Segment::whole}) {
      OwnedSlice s = slice_of_rank(layout_, unit, shards_.rank(), segment);
      if (!s.empty()) {
        if (segment == Segment::whole) s.replica = params_full_[unit].whole;
        s.params =
            segment == Segment::sharded ? part_of_arena(layout_, s, params_shard) : s.of_unit(s.replica);
        s.grads = part_of_arena(layout_, s, grads_shard);
        take_over(context, layout_, state, s);
      }
      slices_.push_back(std::move(s));
    }
  }
}

}  // namespace sc
