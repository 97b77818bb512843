// The buffers of lesson 01, taken from the ledger as data_parallel_plan.cpp has declared them.
#include "common/model/unit_views.h"
#include "data_parallel.h"

namespace sc {

DataParallel::DataParallel(RunContext& context, const Options& options)
    : context_(context),
      options_(options),
      layout_(context.shape.workload.model, context.shape.mesh.world()),
      passes_(context, layout_),
      sums_(passes_.sums()) {
  PlannedBuffers buffers(context.ledger, Plans(options).memory_plan(context.shape));
  params_arena_ = buffers.zeros("params_full");
  const at::Tensor grads_arena = buffers.zeros("grads_full");
  // AdamW updates an fp32 master if parameters have 16 bits, otherwise the parameters themselves, and two
  // moments.
  const OptimizerState state(buffers, "full");
  params_full_ = unit_views(layout_, params_arena_);
  grads_full_ = unit_views(layout_, grads_arena);
  for (int unit = 0; unit < layout_.num_units(); ++unit) {
    OwnedSlice s = whole_unit(layout_, unit);
    s.params = params_full_[unit].sharded;
    s.grads = grads_full_[unit].sharded;
    // Replicas start equal because initialisation is a function of the seed alone; no broadcast is needed.
    take_over(context, layout_, state, s);
    slices_.push_back(std::move(s));
  }
  for (const Bucket& b : make_buckets(layout_, options.bucket)) {
    const int ready_after = options.overlap ? b.ready_after : 0;  // after unit 0 backward is done
    buckets_.push_back(
        {ready_after, unit_of(layout_, b), grads_arena.narrow(0, b.range.begin, b.range.size()), {}, {}});
  }
  grads_bucket_ = buffers.zeros("grads_bucket");  // undefined where gradients travel as they are
  const at::Tensor hashes = buffers.zeros("replica hashes");
  hash_ = hashes.narrow(0, 0, 1);
  hashes_full_ = hashes.narrow(0, 1, hashes.numel() - 1);
}

}  // namespace sc
