// The buffers of lesson 02, taken from the ledger as zero1_plan.cpp has declared them.
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
  PlannedBuffers buffers(context.ledger, Plans(options).memory_plan(context.shape));
  params_full_ = unit_views(layout_, buffers.zeros("params_full", window_of(context.comm)));
  grads_full_ = unit_views(layout_, buffers.zeros("grads_full"));
  // [anchor: one-slice]
  // The optimizer's state has 12 bytes per parameter in 16-bit training (8 in fp32), divided by the ranks.
  const OptimizerState state(buffers);
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
