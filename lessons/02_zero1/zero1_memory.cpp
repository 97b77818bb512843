// What lesson 02 takes from the ledger, as zero1_plan.cpp says.
#include "common/model/unit_views.h"
#include "zero1.h"

namespace sc {

Zero1::Zero1(RunContext& context, const Options& options)
    : context_(context),
      options_(options),
      layout_(context.shape.workload.model, context.shape.mesh.world()),
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
  const OptimizerState state(context, psi / to_int(context.shape.mesh.world()));
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
