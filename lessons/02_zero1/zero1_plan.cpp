// What lesson 02 holds and sends, by formula, and its settings.
#include "zero1_plan.h"

#include "common/model/activation_plan.h"
#include "common/strategy/gradient_dtype.h"
#include "common/strategy/state_plan.h"

namespace sc {

FieldTable<Zero1Options> Zero1Plans::table() const {
  FieldTable<Options> table;
  table.add({"overlap", "",
             "gradients travel during backward, updated slices during the next forward; off: each is "
             "waited for at once"},
            on_off(), &Options::overlap);
  return table;
}

MemoryPlan Zero1Plans::memory_plan(const RunShape& shape) const {
  refuse_other_reduce_dtype(shape);
  MemoryPlan plan;
  const PrecisionConfig& precision = shape.workload.precision;
  const Formula psi("P", layout_of(shape).arena_size()), ranks("N", shape.mesh.world());
  plan.add({Purpose::parameters, "params_full", psi, precision.dtype});
  plan.add({Purpose::gradients, "grads_full", psi, precision.grad_dtype});
  plan_optimizer_state(shape, psi / ranks, plan);
  plan_activation_buffers(shape, plan);
  return plan;
}

Contents Zero1Plans::contents(const RunShape& /*shape*/) const {
  return {.parameters = Extent::slice, .states = Extent::slice};
}

CommPlan Zero1Plans::comm_plan(const RunShape& shape) const {
  CommPlan plan;
  const ParamLayout layout = layout_of(shape);
  for (int unit = 0; unit < layout.num_units(); ++unit) {
    const Elements size(layout.unit(unit).sharded_size);
    plan.add({CommKind::reduce_scatter, shape.workload.precision.grad_dtype, size, shape.mesh.world()},
             {OpPurpose::gradients, unit});
    plan.add({CommKind::all_gather, shape.workload.precision.dtype, size, shape.mesh.world()},
             {OpPurpose::parameters, unit});
  }
  plan.add({CommKind::all_reduce, DType::f64, Elements(4), shape.mesh.world()}, {OpPurpose::sums});
  return plan;
}

}  // namespace sc
