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

// The device as lesson 02 (parameters=whole) or 04, without states but those of resident units, and a slice
// of gradients only where a step has several micro-batches. The host has the states, a gradient and the
// parameters on their way up; where updates begin early, the states twice.
MemoryPlan OffloadPlans::memory_plan(const RunShape& shape) const {
  refuse_contradictions(shape, options_);
  const bool delayed = options_.update == UpdateKind::delayed;
  if (delayed && !options_.overlap)
    refuse_setting("update=delayed", "an update that is put off runs beside the device",
                   "overlap=on, or update=exact");
  MemoryPlan plan;
  plan_device(shape, options_, {}, plan);
  const PrecisionConfig& precision = shape.workload.precision;
  const Elements slice = slice_on_host(layout_of(shape), options_), states = slice * halves_of(options_);
  const std::string of_states = halves_of(options_) == 2 ? " x 2 P/N" : " P/N";
  const auto add = [&](Purpose purpose, const std::string& name, const std::string& of, Elements elements,
                       DType dtype, Place place) {
    plan.add(purpose, name, std::to_string(size_of(dtype)) + of, bytes_of(elements, dtype), place);
  };
  add(Purpose::gradients, "grads_host", delayed ? " x 2 P/N" : " P/N", slice * (delayed ? 2 : 1),
      precision.grad_dtype, Place::pinned);
  const bool rounds = precision.has_master();
  add(Purpose::parameters, "params_host", rounds ? " P/N" : of_states, rounds ? slice : states,
      precision.dtype, Place::pinned);
  if (rounds) add(Purpose::master, "master_host", of_states, states, DType::f32, Place::host);
  add(Purpose::momentum, "momentum_host", of_states, states, DType::f32, Place::host);
  add(Purpose::variance, "variance_host", of_states, states, DType::f32, Place::host);
  return plan;
}

Contents OffloadPlans::contents(const RunShape& shape) const { return contents_of_device(shape, options_); }

CommPlan OffloadPlans::comm_plan(const RunShape& shape) const { return plan_operations(shape, options_); }
Facts OffloadPlans::facts(const RunShape& shape) const { return facts_of_host(shape, options_); }
std::string OffloadPlans::predict(const RunShape& shape) const { return updates_in_words(shape, options_); }

}  // namespace sc
