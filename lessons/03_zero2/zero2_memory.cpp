// What lesson 03 takes from the ledger, as zero2_plan.cpp says.
#include "common/model/unit_views.h"
#include "grad_buffers.h"
#include "zero2.h"

namespace sc {

Zero2::Zero2(RunContext& context, const Options& options)
    : context_(context),
      options_(options),
      layout_(context.shape.workload.model, context.shape.mesh.world()),
      passes_(context, layout_),
      sums_(passes_.sums()),
      published_(static_cast<std::size_t>(layout_.num_units())),
      in_flight_(kGradBuffers),
      scratch_(kGradBuffers) {
  const Elements psi = layout_.arena_size(), slice = psi / to_int(context.shape.mesh.world());
  const PrecisionConfig& precision = context.shape.workload.precision;
  const auto gradient = [&](const std::string& name, std::int64_t n) {
    return n == 0 ? at::Tensor() : context.ledger.zeros(Purpose::gradients, name, {n}, precision.grad_dtype);
  };
  params_full_ =
      unit_views(layout_, zeros_in_window(context, Purpose::parameters, "params_full", psi, precision.dtype));
  // [anchor: four-full-gradients]
  const bool scratch = needs_scratch(context.shape);
  const auto sizes = grad_buffer_sizes(layout_);
  std::vector<at::Tensor> full;
  for (std::size_t buffer = 0; buffer < kGradBuffers; ++buffer) {
    full.push_back(gradient(std::string("grads_full") + kGradBufferNames[buffer], sizes[buffer]));
    if (scratch && options.bucket == 0)
      scratch_[buffer] = gradient(std::string("grads_scratch") + kGradBufferNames[buffer],
                                  sizes[buffer] / to_int(context.shape.mesh.world()));
  }
  const at::Tensor grads_shard = gradient("grads_shard", slice.value());
  if (options.bucket > 0) bucket_.emplace(context, layout_, options.bucket, grads_shard, scratch);
  const OptimizerState state(context, slice);
  for (int unit = 0; unit < layout_.num_units(); ++unit) {
    const at::Tensor& buffer = full[grad_buffer_of(layout_, unit)];
    grads_full_.push_back({buffer.narrow(0, 0, layout_.unit(unit).sharded_size), {}});
    OwnedSlice s = slice_of_rank(layout_, unit, context.comm.rank());
    s.params = s.of_unit(params_full_[unit].sharded);
    s.replica = params_full_[unit].sharded;
    s.grads = part_of_arena(layout_, s, grads_shard);
    // Each rank makes its own slice; the first step publishes them, as any step publishes the last one's.
    take_over(context, layout_, state, s);
    slices_.push_back(std::move(s));
  }
}

}  // namespace sc
