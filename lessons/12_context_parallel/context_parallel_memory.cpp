// What lesson 12 takes from the ledger, as context_parallel_plan.cpp says.
#include "common/model/unit_views.h"
#include "context_parallel.h"

namespace sc {

ContextParallel::ContextParallel(RunContext& context, const Options& options)
    : ContextParallel(context, options,
                      PlannedBuffers(context.ledger, Plans(options).memory_plan(context.shape))) {}

ContextParallel::ContextParallel(RunContext& context, const Options& options, PlannedBuffers buffers)
    : context_(context),
      options_(options),
      cut_(context_cut_of(context.shape, options.parts)),
      layout_(context.shape.workload.model, context.shape.mesh.world()),
      passes_(context, shape_of_part(context.shape, cut_), layout_),
      attention_(context.comm, context.timeline, passes_.gpt(), cut_, options, buffers),
      sums_(passes_.sums()),
      reduced_(static_cast<std::size_t>(layout_.num_units())) {
  passes_.use(attention_);
  const PartSizes& s = passes_.gpt().sizes();
  own_ = buffers.zeros("own_tokens").view({2, s.B, s.T});
  params_arena_ = buffers.zeros("params_full");
  const at::Tensor grads_arena = buffers.zeros("grads_full");
  const OptimizerState state(buffers, "full");
  params_full_ = unit_views(layout_, params_arena_);
  grads_full_ = unit_views(layout_, grads_arena);
  for (int unit = 0; unit < layout_.num_units(); ++unit) {
    OwnedSlice slice = whole_unit(layout_, unit);
    slice.params = params_full_[unit].sharded;
    slice.grads = grads_full_[unit].sharded;
    take_over(context, layout_, state, slice);
    slices_.push_back(std::move(slice));
  }
  const at::Tensor hashes = buffers.zeros("replica hashes");
  hash_ = hashes.narrow(0, 0, 1);
  hashes_full_ = hashes.narrow(0, 1, hashes.numel() - 1);
}

}  // namespace sc
