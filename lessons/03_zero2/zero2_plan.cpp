// What lesson 03 holds and sends, and its settings.
#include "common/model/unit_views.h"
#include "common/strategy/gradient_dtype.h"
#include "grad_buffers.h"
#include "zero2.h"

namespace sc {

FieldTable<Zero2Options> Zero2::fields() {
  FieldTable<Options> table;
  table.add(
      {"bucket", "elements", "how much gradient one reduce-scatter carries; unit: a unit, without a copy"},
      choice_or_integer<std::int64_t>(
          {{"unit", 0}}, 1, [](std::int64_t n) { return n; }, [](const std::int64_t& n) { return n; }),
      &Options::bucket);
  table.add({"overlap", "",
             "gradients travel during backward, updated slices during the next forward; off: each is "
             "waited for at once"},
            on_off(), &Options::overlap);
  return table;
}

namespace {

ParamLayout layout_of(const RunShape& shape) { return ParamLayout(shape.workload.model, shape.world); }

// Later micro-batches' sums land in scratch as large as what travels at once.
bool needs_scratch(const RunShape& shape) { return micro_batches_of(shape) > 1; }

}  // namespace

MemoryPlan Zero2::memory_plan(const RunShape& shape, const Options& options) {
  refuse_other_reduce_dtype(shape);
  MemoryPlan plan;
  const PrecisionConfig& precision = shape.workload.precision;
  const ParamLayout layout = layout_of(shape);
  const std::int64_t world = to_int(shape.world);
  const Elements psi = layout.arena_size(), slice = psi / world;
  const auto add = [&](Purpose purpose, const char* name, const std::string& of, Elements elements,
                       DType dtype) {
    plan.add(purpose, name, std::to_string(size_of(dtype)) + of, bytes_of(elements, dtype));
  };
  add(Purpose::parameters, "params_full", " P", psi, precision.dtype);
  add(Purpose::gradients, "grads_shard", " P/N", slice, precision.grad_dtype);
  const auto sizes = grad_buffer_sizes(layout);
  for (std::size_t buffer = 0; buffer < kGradBuffers; ++buffer) {
    if (sizes[buffer] == 0) continue;  // a model of one block
    add(Purpose::gradients, kGradBufferNames[buffer], " unit", Elements(sizes[buffer]), precision.grad_dtype);
    if (needs_scratch(shape) && options.bucket == 0)
      add(Purpose::gradients, "grads_scratch", " unit/N", Elements(sizes[buffer] / world),
          precision.grad_dtype);
  }
  if (options.bucket > 0) {
    const Elements bucket = largest_of(make_shard_buckets(layout, options.bucket), shape.world);
    add(Purpose::communication, "grads_bucket", " bucket", bucket, precision.grad_dtype);
    if (needs_scratch(shape))
      add(Purpose::gradients, "grads_scratch", " bucket/N", bucket / world, precision.grad_dtype);
  }
  OptimizerState::plan(shape, slice, plan);
  plan_activation_buffers(shape, plan);
  return plan;
}

CommPlan Zero2::comm_plan(const RunShape& shape, const Options& options) {
  CommPlan plan;
  const ParamLayout layout = layout_of(shape);
  const PrecisionConfig& precision = shape.workload.precision;
  const std::int64_t times = micro_batches_of(shape);
  for (int unit = 0; unit < layout.num_units(); ++unit) {
    const Elements size(layout.unit(unit).sharded_size);
    if (options.bucket == 0)
      plan.add(CommKind::reduce_scatter, precision.grad_dtype, size, shape.world, times);
    plan.add(CommKind::all_gather, precision.dtype, size, shape.world);
  }
  if (options.bucket > 0) {
    for (const ShardBucket& b : make_shard_buckets(layout, options.bucket))
      plan.add(CommKind::reduce_scatter, precision.grad_dtype, Elements(b.range.size() * to_int(shape.world)),
               shape.world, times);
  }
  plan.add(CommKind::all_reduce, DType::f64, Elements(4),
           shape.world);  // loss, tokens, sum of squares, overflow flag
  return plan;
}

Zero2::Zero2(RunContext& context, const Options& options)
    : context_(context),
      options_(options),
      layout_(layout_of(context.shape)),
      passes_(context, layout_),
      sums_(passes_.sums()),
      published_(static_cast<std::size_t>(layout_.num_units())),
      in_flight_(kGradBuffers),
      scratch_(kGradBuffers) {
  const Elements psi = layout_.arena_size(), slice = psi / to_int(context.shape.world);
  const PrecisionConfig& precision = context.shape.workload.precision;
  const auto gradient = [&](const char* name, std::int64_t n) {
    return n == 0 ? at::Tensor() : context.ledger.zeros(Purpose::gradients, name, {n}, precision.grad_dtype);
  };
  params_full_ =
      unit_views(layout_, zeros_in_window(context, Purpose::parameters, "params_full", psi, precision.dtype));
  // [anchor: four-full-gradients]
  const bool scratch = needs_scratch(context.shape);
  const auto sizes = grad_buffer_sizes(layout_);
  std::vector<at::Tensor> full;
  for (std::size_t buffer = 0; buffer < kGradBuffers; ++buffer) {
    full.push_back(gradient("grads_full", sizes[buffer]));
    if (scratch && options.bucket == 0)
      scratch_[buffer] = gradient("grads_scratch", sizes[buffer] / to_int(context.shape.world));
  }
  const at::Tensor grads_shard = gradient("grads_shard", slice.value());
  if (options.bucket > 0) bucket_.emplace(context, layout_, options.bucket, grads_shard, scratch);
  const OptimizerState state(context, slice);
  for (int unit = 0; unit < layout_.num_units(); ++unit) {
    const at::Tensor& buffer = full[grad_buffer_of(layout_, unit)];
    grads_full_.push_back({buffer.narrow(0, 0, layout_.unit(unit).sharded_size), {}});
    OwnedSlice s = slice_of_rank(layout_, unit, context.comm.rank());
    s.params = s.of_unit(params_full_[unit].sharded);
    s.replica = params_full_[unit].sharded;
    s.grads = part_of_arena(layout_, s, grads_shard);
    // Each rank makes its own slice; the first step publishes them, as any step publishes the last one's.
    take_over(context, layout_, state, s);
    slices_.push_back(std::move(s));
  }
}

}  // namespace sc
