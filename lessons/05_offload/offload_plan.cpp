#include "offload_plan.h"

#include "common/strategy/state_plan.h"

namespace sc {

FieldTable<OffloadOptions> OffloadPlans::table() const {
  FieldTable<Options> table;
  add_update_fields(table, /*early=*/true);
  table.add({"piece", "elements", "what is copied and updated at a time"}, integer(64), &Options::piece);
  table.add({"prefetch", "units", "how many units ahead of the one that computes are on their way"},
            integer(0, 16), &Options::prefetch);
  table.add({"overlap", "", "copies and updates run beside the device; off: each is waited for at once"},
            on_off(), &Options::overlap);
  add_host_fields(table);
  return table;
}

// The device holds what it does in lesson 02 (parameters=whole) or 04, but of the states only those of
// resident units, and a slice of gradients only where a step has several micro-batches. The host has the
// states, a gradient and the parameters on their way up; where updates begin early it has the states twice.
MemoryPlan OffloadPlans::memory_plan(const RunShape& shape) const {
  refuse_contradictions(shape, options_);
  const bool delayed = options_.update == UpdateKind::delayed;
  if (delayed && !options_.overlap)
    refuse_setting("update=delayed", "an update that is put off runs beside the device",
                   "overlap=on, or update=exact");
  MemoryPlan plan;
  plan_device(shape, options_, {}, plan);
  const PrecisionConfig& precision = shape.workload.precision;
  const Formula slice = slice_on_host(shape, options_), states = halves_of(options_) == 2 ? 2 * slice : slice;
  plan.add(
      {Purpose::gradients, "grads_host", delayed ? 2 * slice : slice, precision.grad_dtype, Place::pinned});
  const bool rounds = precision.has_master();
  plan.add({Purpose::parameters, "params_host", rounds ? slice : states, precision.dtype, Place::pinned});
  if (rounds) plan.add({Purpose::master, "master_host", states, DType::f32, Place::host});
  plan.add({Purpose::momentum, "momentum_host", states, DType::f32, Place::host});
  plan.add({Purpose::variance, "variance_host", states, DType::f32, Place::host});
  return plan;
}

Contents OffloadPlans::contents(const RunShape& shape) const { return contents_of_device(shape, options_); }

CommPlan OffloadPlans::comm_plan(const RunShape& shape) const { return plan_operations(shape, options_); }
Facts OffloadPlans::facts(const RunShape& shape) const { return facts_of_host(shape, options_); }
std::string OffloadPlans::predict(const RunShape& shape) const { return updates_in_words(shape, options_); }

}  // namespace sc
