// What lesson 03 holds and sends, by formula, and its settings.
#include "zero2_plan.h"

#include "common/model/activation_plan.h"
#include "common/strategy/gradient_dtype.h"
#include "common/strategy/state_plan.h"
#include "grad_buffers.h"
#include "shard_buckets.h"

namespace sc {

FieldTable<Zero2Options> Zero2Plans::table() const {
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

MemoryPlan Zero2Plans::memory_plan(const RunShape& shape) const {
  refuse_other_reduce_dtype(shape);
  MemoryPlan plan;
  const PrecisionConfig& precision = shape.workload.precision;
  const ParamLayout layout = layout_of(shape);
  const Formula psi("P", layout.arena_size()), ranks("N", shape.mesh.world());
  const auto gradients = [&](const std::string& name, const Formula& elements) {
    plan.add_nonempty({Purpose::gradients, name, elements, precision.grad_dtype});
  };
  plan.add({Purpose::parameters, "params_full", psi, precision.dtype});
  gradients("grads_shard", psi / ranks);
  // Later micro-batches' sums land in scratch as large as what travels at once.
  const bool needs_scratch = micro_batches_of(shape) > 1;
  for (std::size_t buffer = 0; buffer < kGradBuffers; ++buffer) {
    const Formula unit("unit", grad_buffer_sizes(layout)[buffer]);  // 0 in a model of one block
    gradients(std::string("grads_full") + kGradBufferNames[buffer], unit);
    if (needs_scratch && options_.bucket == 0)
      gradients(std::string("grads_scratch") + kGradBufferNames[buffer], unit / ranks);
  }
  if (options_.bucket > 0) {
    const Formula bucket("bucket",
                         largest_of(make_shard_buckets(layout, options_.bucket), shape.mesh.world()));
    plan.add({Purpose::communication, "grads_bucket", bucket, precision.grad_dtype});
    if (needs_scratch) gradients("grads_scratch", bucket / ranks);
  }
  plan_optimizer_state(shape, psi / ranks, plan);
  plan_activation_buffers(shape, plan);
  return plan;
}

Contents Zero2Plans::contents(const RunShape& shape) const {
  const int blocks = static_cast<int>(shape.workload.model.layers);
  Contents contents{.parameters = Extent::slice, .states = Extent::slice};
  if (options_.bucket > 0) contents.unknown = "a bucket carries gradients of several units";
  contents.most_gradients = 2 + std::min(2, blocks);
  return contents;
}

CommPlan Zero2Plans::comm_plan(const RunShape& shape) const {
  CommPlan plan;
  const ParamLayout layout = layout_of(shape);
  const PrecisionConfig& precision = shape.workload.precision;
  const std::int64_t times = micro_batches_of(shape);
  for (int unit = 0; unit < layout.num_units(); ++unit) {
    const Elements size(layout.unit(unit).sharded_size);
    if (options_.bucket == 0)
      plan.add({CommKind::reduce_scatter, precision.grad_dtype, size, shape.mesh.world()},
               {OpPurpose::gradients, unit}, times);
    plan.add({CommKind::all_gather, precision.dtype, size, shape.mesh.world()},
             {OpPurpose::parameters, unit});
  }
  if (options_.bucket > 0) {
    for (const ShardBucket& b : make_shard_buckets(layout, options_.bucket))
      plan.add({CommKind::reduce_scatter, precision.grad_dtype,
                Elements(b.range.size() * to_int(shape.mesh.world())), shape.mesh.world()},
               {OpPurpose::gradients, unit_of(layout, b)}, times);
  }
  plan.add({CommKind::all_reduce, DType::f64, Elements(4), shape.mesh.world()}, {OpPurpose::sums});
  return plan;
}

Facts Zero2Plans::facts(const RunShape& /*shape*/) const {
  Facts facts;
  facts.smaller = {"bucket=unit"};
  return facts;
}

}  // namespace sc
