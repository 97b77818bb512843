// What lesson 02 holds and sends, and its settings.
#include "common/model/unit_views.h"
#include "common/strategy/gradient_dtype.h"
#include "zero1.h"

namespace sc {

FieldTable<Zero1Options> Zero1::fields() {
  FieldTable<Options> table;
  table.add({"overlap", "",
             "gradients travel during backward, updated slices during the next forward; off: each is "
             "waited for at once"},
            on_off(), &Options::overlap);
  return table;
}

namespace {

ParamLayout layout_of(const RunShape& shape) { return ParamLayout(shape.workload.model, shape.world); }

}  // namespace

MemoryPlan Zero1::memory_plan(const RunShape& shape, const Options& /*options*/) {
  refuse_other_reduce_dtype(shape);
  MemoryPlan plan;
  const PrecisionConfig& precision = shape.workload.precision;
  const Elements psi = layout_of(shape).arena_size();
  const auto whole = [&](Purpose purpose, const char* name, DType dtype) {
    plan.add(purpose, name, std::to_string(size_of(dtype)) + " P", bytes_of(psi, dtype));
  };
  whole(Purpose::parameters, "params_full", precision.dtype);
  whole(Purpose::gradients, "grads_full", precision.grad_dtype);
  OptimizerState::plan(shape, psi / to_int(shape.world), plan);
  plan_activation_buffers(shape, plan);
  return plan;
}

CommPlan Zero1::comm_plan(const RunShape& shape, const Options& /*options*/) {
  CommPlan plan;
  const ParamLayout layout = layout_of(shape);
  for (int unit = 0; unit < layout.num_units(); ++unit) {
    const Elements size(layout.unit(unit).sharded_size);
    plan.add(CommKind::reduce_scatter, shape.workload.precision.grad_dtype, size, shape.world);
    plan.add(CommKind::all_gather, shape.workload.precision.dtype, size, shape.world);
  }
  plan.add(CommKind::all_reduce, DType::f64, Elements(4),
           shape.world);  // loss, tokens, sum of squares, overflow flag
  return plan;
}

Zero1::Zero1(RunContext& context, const Options& options)
    : context_(context),
      options_(options),
      layout_(layout_of(context.shape)),
      passes_(context, layout_),
      sums_(passes_.sums()),
      reduced_(static_cast<std::size_t>(layout_.num_units())),
      published_(static_cast<std::size_t>(layout_.num_units())) {
  const Elements psi = layout_.arena_size();
  const PrecisionConfig& precision = context.shape.workload.precision;
  params_full_ =
      unit_views(layout_, zeros_in_window(context, Purpose::parameters, "params_full", psi, precision.dtype));
  grads_full_ = unit_views(
      layout_, context.ledger.zeros(Purpose::gradients, "grads_full", {psi.value()}, precision.grad_dtype));
  // [anchor: one-slice]
  // 12 bytes a parameter of optimizer state in 16-bit training (8 in fp32), divided by the ranks.
  const OptimizerState state(context, psi / to_int(context.shape.world));
  for (int unit = 0; unit < layout_.num_units(); ++unit) {
    OwnedSlice s = slice_of_rank(layout_, unit, context.comm.rank());
    s.params = s.of_unit(params_full_[unit].sharded);
    s.replica = params_full_[unit].sharded;
    s.grads = s.of_unit(grads_full_[unit].sharded);
    // Each rank makes its own slice; the first step publishes them, as any step publishes the last one's.
    take_over(context, layout_, state, s);
    slices_.push_back(std::move(s));
  }
}

}  // namespace sc
