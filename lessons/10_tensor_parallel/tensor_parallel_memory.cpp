// What lesson 10 takes from the ledger, as tensor_parallel_plan.cpp says.
#include "common/model/unit_views.h"
#include "tensor_parallel.h"

namespace sc {

TensorParallel::TensorParallel(RunContext& context, const Options& options)
    : context_(context),
      options_(options),
      layout_(tensor_layout(context.shape)),
      sizes_(context.shape, layout_, options.tokens),
      layers_(context, context.comm, layout_, sizes_, options),
      sums_(layers_.sums()) {
  PlannedBuffers buffers(context.ledger, Plans(options).memory_plan(context.shape));
  const at::Tensor params = buffers.zeros("params_part"), grads = buffers.zeros("grads_part");
  const OptimizerState state(buffers, "part");
  // [anchor: cut-and-replicated]
  // What is cut lies in front, what every rank has behind it: whatever needs a sum over ranks is in one
  // piece.
  params_ = unit_views_of_both(layout_, params);
  grads_ = unit_views_of_both(layout_, grads);
  layers_.use(params_, grads_);
  replicated_grads_ = whole_segments(layout_, grads);
  for (int unit = 0; unit < layout_.num_units(); ++unit) {
    for (const Segment segment : {Segment::sharded, Segment::whole}) {
      OwnedSlice s{.unit = unit, .segment = segment, .range = {0, layout_.unit(unit).size(segment)}};
      if (s.empty()) continue;
      s.params = params_[unit].segment(segment);
      s.grads = grads_[unit].segment(segment);
      // Each rank makes its part of the whole model's first weights, and equal copies of the rest.
      take_over(context, layout_, state, s);
      slices_.push_back(std::move(s));
    }
  }
  const at::Tensor hashes = buffers.zeros("replica hashes");
  const std::int64_t own = layout_.num_units() + 1;
  hashes_ = hashes.narrow(0, 0, own);
  hashes_of_all_ = hashes.narrow(0, own, hashes.numel() - own);
}

}  // namespace sc
