// The buffers of lesson 03, taken from the ledger as zero2_plan.cpp has declared them.
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
  PlannedBuffers buffers(context.ledger, Plans(options).memory_plan(context.shape));
  params_full_ = unit_views(layout_, buffers.zeros("params_full", window_of(context.comm)));
  // [anchor: four-full-gradients]
  std::vector<at::Tensor> full;
  for (std::size_t buffer = 0; buffer < kGradBuffers; ++buffer) {
    full.push_back(buffers.zeros(std::string("grads_full") + kGradBufferNames[buffer]));
    scratch_[buffer] = buffers.zeros(std::string("grads_scratch") + kGradBufferNames[buffer]);
  }
  const at::Tensor grads_shard = buffers.zeros("grads_shard");
  if (options.bucket > 0) bucket_.emplace(context, layout_, options.bucket, grads_shard, buffers);
  const OptimizerState state(buffers);
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
