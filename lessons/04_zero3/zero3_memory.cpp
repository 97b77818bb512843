// What lesson 04 takes from the ledger, as zero3_plan.cpp says.
#include "common/strategy/pool_gathers.h"
#include "zero3.h"
#include "zero3_buffers.h"

namespace sc {
namespace {

// Neighbours share: what they gather and sum in every pass stays near; the copies are far apart, and meet
// once a step.
std::unique_ptr<Communicator> neighbours(const RunContext& context, const Sharing& sharing) {
  if (sharing.replicas == 1) return nullptr;
  return context.comm.split(static_cast<int>(to_int(context.comm.rank())) / sharing.shards);
}
std::unique_ptr<Communicator> copies(const RunContext& context, const Sharing& sharing) {
  if (sharing.replicas == 1) return nullptr;
  return context.comm.split(static_cast<int>(to_int(context.comm.rank())) % sharing.shards);
}

}  // namespace

Zero3::Zero3(RunContext& context, const Options& options)
    : context_(context),
      options_(options),
      layout_(layout_of(context.shape, options)),
      passes_(context, layout_),
      part_(neighbours(context, Sharing(context.shape, options))),
      replicas_(copies(context, Sharing(context.shape, options))),
      shards_(part_ ? *part_ : context.comm),
      sums_(passes_.sums()),
      gathered_(static_cast<std::size_t>(layout_.num_units())),
      published_(static_cast<std::size_t>(layout_.num_units())),
      in_flight_(kZero3GradBuffers),
      scratch_(kZero3GradBuffers) {
  const PrecisionConfig& precision = context.shape.workload.precision;
  const std::int64_t shards = to_int(shards_.size());
  const Elements slice = layout_.arena_size() / shards, whole = layout_.arena_size(Segment::whole);
  const auto flat = [&](Purpose purpose, const std::string& name, std::int64_t n, DType dtype) {
    return n == 0 ? at::Tensor() : context.ledger.zeros(purpose, name, {n}, dtype);
  };
  const auto gathered = [&](const std::string& name, std::int64_t n) {
    return n == 0
               ? at::Tensor()
               : zeros_in_window(context, shards_, Purpose::parameters, name, Elements(n), precision.dtype);
  };
  // [anchor: everything-sharded]
  const at::Tensor params_shard = gathered("params_shard", (layout_.arena_size() - whole).value() / shards);
  const at::Tensor params_whole = flat(Purpose::parameters, "params_whole", whole.value(), precision.dtype);
  const at::Tensor grads_shard = flat(Purpose::gradients, "grads_shard", slice.value(), precision.grad_dtype);
  const OptimizerState state(context, slice);

  // What is gathered, and the gradients that backward computes, for a moment and in full.
  const int pool = pool_of(layout_, options);
  const auto part = [](const at::Tensor& of, std::int64_t begin, std::int64_t n) {
    return n == 0 ? at::Tensor() : of.narrow(0, begin, n);
  };
  std::vector<at::Tensor> params, grads;
  for (const UnitLayout& u : sizes_of(layout_, static_cast<std::size_t>(2 + pool), pool))
    params.push_back(gathered(name_of_buffer("params_full", params.size()), u.sharded_size));
  resident_.assign(params.size(), -1);
  for (const UnitLayout& u : sizes_of(layout_, kZero3GradBuffers, 2)) {
    const std::int64_t sharded = u.sharded_size / shards, size = sharded + u.whole_size / shards;
    const std::size_t b = grads.size();
    grads.push_back(
        flat(Purpose::gradients, name_of_buffer("grads_full", b), size * shards, precision.grad_dtype));
    if (micro_batches_of(context.shape) == 1) continue;
    const at::Tensor beside =
        flat(Purpose::gradients, name_of_buffer("grads_scratch", b), size, precision.grad_dtype);
    scratch_[b] = {part(beside, 0, sharded), part(beside, sharded, size - sharded)};
  }
  for (int unit = 0; unit < layout_.num_units(); ++unit) {
    const UnitLayout& u = layout_.unit(unit);
    params_buffer_.push_back(params_buffer_of(layout_, pool, unit));
    grads_buffer_.push_back(grads_buffer_of(layout_, unit));
    const at::Tensor& p = params[params_buffer_.back()];
    const at::Tensor& g = grads[grads_buffer_.back()];
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
