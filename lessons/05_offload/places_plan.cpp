// What lesson 05 holds on the device, and on the host.
#include <algorithm>

#include "device_buffers.h"
#include "offload.h"

namespace sc {
namespace {

std::string name_of_buffer(const char* what, std::size_t buffer) {
  return std::string(what) + (buffer == 0 ? ", unit 0" : buffer == 1 ? ", last unit" : ", a block");
}

}  // namespace

int Offload::pool_of(const ParamLayout& layout, const Options& options) {
  return std::min<int>(layout.num_blocks(), static_cast<int>(options.prefetch) + 1);
}

void Offload::plan_device(const RunShape& shape, const Options& options, const Keeps& keeps,
                          MemoryPlan& plan) {
  const PrecisionConfig& precision = shape.workload.precision;
  const ParamLayout layout(shape.workload.model, shape.world);
  const std::int64_t world = to_int(shape.world);
  const Elements whole = layout.arena_size(), slice(whole.value() / world);
  const auto add = [&](Purpose purpose, const std::string& name, const std::string& of, Elements elements,
                       DType dtype) {
    plan.add(purpose, name, std::to_string(size_of(dtype)) + of, bytes_of(elements, dtype));
  };
  if (options.parameters == ParametersOn::whole) {
    add(Purpose::parameters, "params_full", " P", whole, precision.dtype);
  } else {
    if (keeps.parameters) add(Purpose::parameters, "params_shard", " P/N", slice, precision.dtype);
    const std::vector<std::int64_t> sizes = sizes_of(layout, pool_of(layout, options));
    for (std::size_t b = 0; b < sizes.size(); ++b)
      add(Purpose::parameters, name_of_buffer("params_full", b), " unit", Elements(sizes[b]),
          precision.dtype);
  }
  const bool several = keeps.gradients || micro_batches_of(shape) > 1;
  if (several) add(Purpose::gradients, "grads_shard", " P/N", slice, precision.grad_dtype);
  const std::vector<std::int64_t> grads = sizes_of(layout, kGradPool);
  for (std::size_t b = 0; b < grads.size(); ++b) {
    add(Purpose::gradients, name_of_buffer("grads_full", b), " unit", Elements(grads[b]),
        precision.grad_dtype);
    if (several)
      add(Purpose::gradients, "grads_scratch", " unit/N", Elements(grads[b] / world), precision.grad_dtype);
  }
  add(Purpose::workspace, "squares, scalars", " (4 units + 4)", Elements(4 * layout.num_units() + 4),
      DType::f64);
  plan_activation_buffers(shape, plan);
  plan.add(Purpose::workspace, "scalars_host", "8 x 8", bytes_of(Elements(8), DType::f64), Place::pinned);
}

void Offload::plan_host(const RunShape& shape, const Options& options, MemoryPlan& plan) {
  const PrecisionConfig& precision = shape.workload.precision;
  const ParamLayout layout(shape.workload.model, shape.world);
  const Elements slice = layout.arena_size() / to_int(shape.world);
  const auto add = [&](Purpose purpose, const std::string& name, const std::string& of, Elements elements,
                       DType dtype, Place place) {
    plan.add(purpose, name, std::to_string(size_of(dtype)) + of, bytes_of(elements, dtype), place);
  };
  const int turns = options.update == UpdateKind::delayed ? 2 : 1;
  add(Purpose::gradients, "grads_host", turns == 2 ? " x 2 P/N" : " P/N", slice * turns, precision.grad_dtype,
      Place::pinned);
  add(Purpose::parameters, "params_host", " P/N", slice, precision.dtype, Place::pinned);
  if (precision.has_master()) add(Purpose::master, "master_host", " P/N", slice, DType::f32, Place::host);
  add(Purpose::momentum, "momentum_host", " P/N", slice, DType::f32, Place::host);
  add(Purpose::variance, "variance_host", " P/N", slice, DType::f32, Place::host);
}

}  // namespace sc
