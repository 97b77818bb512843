#include "offload_plan.h"

#include "common/base/check.h"

namespace sc {

FieldTable<OffloadOptions> OffloadPlans::table() const {
  FieldTable<Options> table;
  table.add({"parameters", "",
             "on the device: all of them on every rank, or slices that are gathered unit by unit"},
            choice<ParametersOn>({{"whole", ParametersOn::whole}, {"sharded", ParametersOn::sharded}}),
            &Options::parameters);
  table.add({"update", "", "forward waits for the update before it, or computes one update behind"},
            choice<UpdateKind>({{"exact", UpdateKind::exact}, {"delayed", UpdateKind::delayed}}),
            &Options::update);
  table.add({"warm_steps", "steps", "delayed: so many steps are exact first"}, integer(0),
            &Options::warm_steps);
  table.add({"piece", "elements", "what is copied and updated at a time"}, integer(64), &Options::piece);
  table.add({"prefetch", "units", "how many units ahead of the one that computes are on their way"},
            integer(0, 16), &Options::prefetch);
  table.add({"overlap", "", "copies and updates run beside the device; off: each is waited for at once"},
            on_off(), &Options::overlap);
  table.add({"adam_threads", "threads", "a rank's for AdamW; 0: its share of the cores, less one"},
            integer(0, 1024), &Options::adam_threads);
  table.add({"link_mbps", "MB/s", "copies between device and host are no faster, on the CPU; 0: no limit"},
            real({.low = 0}), &Options::link_mbps);
  return table;
}

// The device as lesson 04, without states; the host has those, a gradient and the parameters on their way up.
MemoryPlan OffloadPlans::memory_plan(const RunShape& shape) const {
  refuse_contradictions(shape, options_);
  const bool delayed = options_.update == UpdateKind::delayed;
  if (delayed && !options_.overlap)
    throw InputError(ExitCode::usage, "update=delayed", "an update that is put off runs beside the device",
                     "overlap=on, or update=exact");
  MemoryPlan plan;
  plan_device(shape, options_, {}, plan);
  const PrecisionConfig& precision = shape.workload.precision;
  const Elements slice = ParamLayout(shape.workload.model, shape.world).arena_size() / to_int(shape.world);
  const auto add = [&](Purpose purpose, const std::string& name, const std::string& of, Elements elements,
                       DType dtype, Place place) {
    plan.add(purpose, name, std::to_string(size_of(dtype)) + of, bytes_of(elements, dtype), place);
  };
  add(Purpose::gradients, "grads_host", delayed ? " x 2 P/N" : " P/N", slice * (delayed ? 2 : 1),
      precision.grad_dtype, Place::pinned);
  add(Purpose::parameters, "params_host", " P/N", slice, precision.dtype, Place::pinned);
  if (precision.has_master()) add(Purpose::master, "master_host", " P/N", slice, DType::f32, Place::host);
  add(Purpose::momentum, "momentum_host", " P/N", slice, DType::f32, Place::host);
  add(Purpose::variance, "variance_host", " P/N", slice, DType::f32, Place::host);
  return plan;
}

CommPlan OffloadPlans::comm_plan(const RunShape& shape) const { return plan_operations(shape, options_); }
Facts OffloadPlans::facts(const RunShape& shape) const { return facts_of_host(shape, options_); }
std::string OffloadPlans::predict(const RunShape& shape) const { return updates_in_words(shape, options_); }

}  // namespace sc
