// What lesson 04 holds and sends, and its settings.
#include <algorithm>

#include "common/strategy/gradient_dtype.h"
#include "zero3.h"

namespace sc {

FieldTable<Zero3Options> Zero3::fields() {
  FieldTable<Options> table;
  table.add({"prefetch", "units", "how many units ahead of the one that computes are on their way"},
            integer(0, 16), &Options::prefetch);
  table.add(
      {"reshard_after_forward", "",
       "a block's parameters are released after forward and gathered again for backward; off: every block "
       "has a buffer"},
      on_off(), &Options::reshard_after_forward);
  table.add({"persist_below", "elements", "tensors with fewer elements stay whole on every rank; 0: none"},
            integer(0), &Options::persist_below);
  return table;
}

namespace {

ParamLayout layout_of(const RunShape& shape, const Zero3Options& options) {
  return ParamLayout(shape.workload.model, shape.world, options.persist_below);
}

// Buffers of gathered parameters: unit 0's, which tied embedding and head share, the last unit's, and the
// blocks' pool: the one that computes and those on their way.
int pool_of(const ParamLayout& layout, const Zero3Options& options) {
  if (!options.reshard_after_forward) return layout.num_blocks();
  return std::min<int>(layout.num_blocks(), static_cast<int>(options.prefetch) + 1);
}
std::size_t params_buffer_of(const ParamLayout& layout, int pool, int unit) {
  if (unit == 0) return 0;
  if (unit == layout.last_unit()) return 1;
  return static_cast<std::size_t>(2 + unit % pool);
}

// What a plan calls one.
std::string name_of_buffer(const char* what, std::size_t buffer) {
  return std::string(what) + (buffer == 0 ? ", unit 0" : buffer == 1 ? ", last unit" : ", a block");
}

// Buffers of full gradients, as in lesson 03: unit 0, the last unit, two for the blocks.
constexpr std::size_t kGradBuffers = 4;
std::size_t grads_buffer_of(const ParamLayout& layout, int unit) { return params_buffer_of(layout, 2, unit); }

// Elements of the largest unit that uses each buffer.
std::vector<UnitLayout> sizes_of(const ParamLayout& layout, std::size_t buffers, int pool) {
  std::vector<UnitLayout> sizes(buffers);
  for (int unit = 0; unit < layout.num_units(); ++unit) {
    UnitLayout& size = sizes[params_buffer_of(layout, pool, unit)];
    size.sharded_size = std::max(size.sharded_size, layout.unit(unit).sharded_size);
    size.whole_size = std::max(size.whole_size, layout.unit(unit).whole_size);
  }
  return sizes;
}

}  // namespace

MemoryPlan Zero3::memory_plan(const RunShape& shape, const Options& options) {
  refuse_other_reduce_dtype(shape);
  MemoryPlan plan;
  const PrecisionConfig& precision = shape.workload.precision;
  const ParamLayout layout = layout_of(shape, options);
  const std::int64_t world = to_int(shape.world);
  const Elements sharded(layout.arena_size(Segment::sharded).value() / world),
      whole = layout.arena_size(Segment::whole), slice(layout.arena_size().value() / world);
  const auto add = [&](Purpose purpose, const std::string& name, const std::string& of, Elements elements,
                       DType dtype) {
    if (elements.value() > 0)
      plan.add(purpose, name, std::to_string(size_of(dtype)) + of, bytes_of(elements, dtype));
  };
  add(Purpose::parameters, "params_shard", whole.value() == 0 ? " P/N" : " (P - W)/N", sharded,
      precision.dtype);
  add(Purpose::parameters, "params_whole", " W", whole, precision.dtype);
  const int pool = pool_of(layout, options);
  const std::vector<UnitLayout> params = sizes_of(layout, static_cast<std::size_t>(2 + pool), pool),
                                grads = sizes_of(layout, kGradBuffers, 2);
  for (std::size_t b = 0; b < params.size(); ++b)
    add(Purpose::parameters, name_of_buffer("params_full", b), " unit", Elements(params[b].sharded_size),
        precision.dtype);
  add(Purpose::gradients, "grads_shard", " P/N", slice, precision.grad_dtype);
  for (std::size_t b = 0; b < grads.size(); ++b) {
    const std::int64_t size = grads[b].sharded_size + grads[b].whole_size;
    add(Purpose::gradients, name_of_buffer("grads_full", b), " unit", Elements(size), precision.grad_dtype);
    if (micro_batches_of(shape) > 1)
      add(Purpose::gradients, "grads_scratch", " unit/N", Elements(size / world), precision.grad_dtype);
  }
  OptimizerState::plan(shape, slice, plan);
  plan_activation_buffers(shape, plan);
  return plan;
}

// Units 0 and L+1 are gathered once a step, since their buffers are theirs alone. A pass over the blocks
// gathers those that the pass before has not left in the pool; the first pass of a step finds nothing there.
CommPlan Zero3::comm_plan(const RunShape& shape, const Options& options) {
  CommPlan plan;
  const ParamLayout layout = layout_of(shape, options);
  const PrecisionConfig& precision = shape.workload.precision;
  const std::int64_t micro = micro_batches_of(shape), blocks = layout.num_blocks(),
                     pool = pool_of(layout, options);
  for (int unit = 0; unit < layout.num_units(); ++unit) {
    const UnitLayout& u = layout.unit(unit);
    const bool own_buffer = unit == 0 || unit == layout.last_unit();
    if (own_buffer) plan.add(CommKind::all_gather, precision.dtype, Elements(u.sharded_size), shape.world);
    plan.add(CommKind::all_gather, precision.dtype, Elements(u.whole_size), shape.world);
    plan.add(CommKind::reduce_scatter, precision.grad_dtype, Elements(u.sharded_size), shape.world, micro);
    plan.add(CommKind::reduce_scatter, precision.grad_dtype, Elements(u.whole_size), shape.world, micro);
  }
  plan.add(CommKind::all_gather, precision.dtype, Elements(layout.unit(1).sharded_size), shape.world,
           blocks + (2 * micro - 1) * (blocks - pool));
  plan.add(CommKind::all_reduce, DType::f64, Elements(4),
           shape.world);  // loss, tokens, sum of squares, overflow flag
  return plan;
}

Zero3::Zero3(RunContext& context, const Options& options)
    : context_(context),
      options_(options),
      layout_(layout_of(context.shape, options)),
      passes_(context, layout_),
      sums_(passes_.sums()),
      gathered_(static_cast<std::size_t>(layout_.num_units())),
      published_(static_cast<std::size_t>(layout_.num_units())),
      in_flight_(kGradBuffers),
      scratch_(kGradBuffers) {
  const PrecisionConfig& precision = context.shape.workload.precision;
  const std::int64_t world = to_int(context.shape.world);
  const Elements slice = layout_.arena_size() / world, whole = layout_.arena_size(Segment::whole);
  const auto flat = [&](Purpose purpose, const char* name, std::int64_t n, DType dtype) {
    return n == 0 ? at::Tensor() : context.ledger.zeros(purpose, name, {n}, dtype);
  };
  const auto gathered = [&](const char* name, std::int64_t n) {
    return n == 0 ? at::Tensor()
                  : zeros_in_window(context, Purpose::parameters, name, Elements(n), precision.dtype);
  };
  // [anchor: everything-sharded]
  const at::Tensor params_shard = gathered("params_shard", (layout_.arena_size() - whole).value() / world);
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
    params.push_back(gathered("params_full", u.sharded_size));
  resident_.assign(params.size(), -1);
  for (const UnitLayout& u : sizes_of(layout_, kGradBuffers, 2)) {
    const std::int64_t sharded = u.sharded_size / world, size = sharded + u.whole_size / world;
    grads.push_back(flat(Purpose::gradients, "grads_full", size * world, precision.grad_dtype));
    if (micro_batches_of(context.shape) == 1) continue;
    const at::Tensor beside = flat(Purpose::gradients, "grads_scratch", size, precision.grad_dtype);
    scratch_[grads.size() - 1] = {part(beside, 0, sharded), part(beside, sharded, size - sharded)};
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
      OwnedSlice s = slice_of_rank(layout_, unit, context.comm.rank(), segment);
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
