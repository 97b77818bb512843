// What lesson 00 takes from the ledger, as one_device_plan.cpp says.
#include "common/model/unit_views.h"
#include "one_device.h"

namespace sc {

// [anchor: four-vectors]
// Everything that a model is made of: one arena a purpose, from the ledger, seen unit by unit. Later lessons
// move these vectors elsewhere, and change nothing of what is computed from them.
OneDevice::OneDevice(RunContext& context, WorldSize ranks, const MemoryPlan& plan)
    : context_(context),
      buffers_(context.ledger, plan),
      layout_(context.shape.workload.model, ranks),
      passes_(context, layout_),
      sums_(passes_.sums()) {
  params_full_ = unit_views(layout_, buffers_.zeros("params_full"));
  grads_arena_ = buffers_.zeros("grads_full");
  grads_full_ = unit_views(layout_, grads_arena_);
  // AdamW steps an fp32 master where parameters have 16 bits, else the parameters, and keeps two moments.
  const OptimizerState state(buffers_, "full");
  for (int unit = 0; unit < layout_.num_units(); ++unit) {
    OwnedSlice s = whole_unit(layout_, unit);
    s.params = params_full_[unit].sharded;
    s.grads = grads_full_[unit].sharded;
    take_over(context, layout_, state, s);
    slices_.push_back(std::move(s));
  }
}

}  // namespace sc
