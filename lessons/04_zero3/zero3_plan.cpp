#include "zero3_plan.h"

#include "common/model/activation_plan.h"
#include "common/strategy/gradient_dtype.h"
#include "common/strategy/group_plan.h"
#include "common/strategy/pool_gathers.h"
#include "common/strategy/state_plan.h"
#include "zero3_buffers.h"

namespace sc {

FieldTable<Zero3Options> Zero3Plans::table() const {
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
  table.add({"shard_ranks", "ranks",
             "neighbours that share each vector out; groups of them are replicas, summed once a step (hybrid "
             "sharding); 0: all ranks"},
            integer(0, 1 << 20), &Options::shard_ranks);
  return table;
}

MemoryPlan Zero3Plans::memory_plan(const RunShape& shape) const {
  refuse_other_reduce_dtype(shape);
  MemoryPlan plan;
  const PrecisionConfig& precision = shape.workload.precision;
  const ParamLayout layout = layout_of(shape, options_);
  const Sharing sharing(shape, options_);
  const Formula psi("P", layout.arena_size()), kept_whole("W", layout.arena_size(Segment::whole)),
      k = sharing.replicas == 1 ? Formula("N", sharing.shards) : Formula("k", sharing.shards);
  const auto parameters = [&](const std::string& name, const Formula& elements) {
    plan.add_nonempty({Purpose::parameters, name, elements, precision.dtype});
  };
  const auto gradients = [&](const std::string& name, const Formula& elements) {
    plan.add_nonempty({Purpose::gradients, name, elements, precision.grad_dtype});
  };
  const auto unit = [](const UnitLayout& u) { return Formula("unit", u.sharded_size + u.whole_size); };
  parameters("params_shard", (kept_whole.value() == 0 ? psi : psi - kept_whole) / k);
  parameters("params_whole", kept_whole);
  const std::vector<UnitLayout> params = sizes_of(layout, pool_of(layout, options_)),
                                grads = sizes_of(layout, kGradPool);
  for (std::size_t b = 0; b < params.size(); ++b) {
    const Formula whole("whole", params[b].whole_size);
    parameters(name_of_buffer("params_full", b),
               whole.value() == 0 ? unit(params[b]) : unit(params[b]) - whole);
  }
  gradients("grads_shard", psi / k);
  for (std::size_t b = 0; b < grads.size(); ++b) {
    gradients(name_of_buffer("grads_full", b), unit(grads[b]));
    if (micro_batches_of(shape) > 1) gradients(name_of_buffer("grads_scratch", b), unit(grads[b]) / k);
  }
  plan_optimizer_state(shape, psi / k, plan);
  plan_activation_buffers(shape, plan);
  if (sharing.replicas > 1) {
    plan_group(shape, k, plan);
    plan_group(shape, Formula("R", sharing.replicas), plan);
  }
  return plan;
}

Contents Zero3Plans::contents(const RunShape& shape) const {
  Contents contents{.parameters = Extent::slice, .states = Extent::slice};
  if (options_.persist_below > 0) contents.unknown = "with persist_below a part of a unit is always whole";
  contents.most_gradients = 2 + kGradPool;
  contents.most_parameters = 2 + pool_of(layout_of(shape, options_), options_);
  return contents;
}

// Units 0 and L+1 are gathered once per step, since their buffers are theirs alone. A block is gathered for
// each pass, unless the pass before has left it in the pool.
CommPlan Zero3Plans::comm_plan(const RunShape& shape) const {
  CommPlan plan;
  const ParamLayout layout = layout_of(shape, options_);
  const PrecisionConfig& precision = shape.workload.precision;
  const std::int64_t micro = micro_batches_of(shape);
  const Sharing sharing(shape, options_);
  const WorldSize shards{sharing.shards}, replicas{sharing.replicas};
  for (int unit = 0; unit < layout.num_units(); ++unit) {
    const UnitLayout& u = layout.unit(unit);
    const Elements sharded(u.sharded_size), whole(u.whole_size);
    const What params{OpPurpose::parameters, unit}, grads{OpPurpose::gradients, unit};
    plan.add({CommKind::all_gather, precision.dtype, sharded, shards}, params,
             gathers_of(layout, pool_of(layout, options_), micro, unit));
    plan.add({CommKind::all_gather, precision.dtype, whole, shards}, params);
    plan.add({CommKind::reduce_scatter, precision.grad_dtype, sharded, shards}, grads, micro);
    plan.add({CommKind::reduce_scatter, precision.grad_dtype, whole, shards}, grads, micro);
    if (sharing.replicas == 1) continue;
    for (const Elements& of : {sharded, whole})
      plan.add({CommKind::all_reduce, precision.grad_dtype, of / sharing.shards, replicas, sharing.shards},
               grads);
  }
  plan.add({CommKind::all_reduce, DType::f64, Elements(4), shape.mesh.world()}, {OpPurpose::sums});
  return plan;
}

Facts Zero3Plans::facts(const RunShape& /*shape*/) const {
  Facts facts;
  facts.smaller = {"shard_ranks=0", "persist_below=0", "reshard_after_forward=on", "prefetch=0"};
  return facts;
}

}  // namespace sc
