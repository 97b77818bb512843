// What lesson 10 takes from the ledger, as tensor_parallel_plan.cpp says.
#include "common/model/unit_views.h"
#include "tensor_parallel.h"

namespace sc {

TensorParallel::TensorParallel(RunContext& context, const Options& options)
    : context_(context),
      options_(options),
      parts_(context.shape, tensor_layout(context.shape),
             PartSizes(context.shape, tensor_layout(context.shape), options.tokens)) {
  for (std::int64_t i = 0; i < options.lanes; ++i) {
    PartBuffers buffers(context.shape, parts_.sizes(), options.kept(), context.ledger,
                        window_of(context.comm, WindowUse::sums));
    activations_.push_back(buffers);
    lanes_.emplace_back(parts_, context.comm, context.shape.workload.activations, options.kept(), buffers);
  }
  sums_ = context.ledger.zeros(step_sums());
  PlannedBuffers buffers(context.ledger, Plans(options).memory_plan(context.shape));
  const ParamLayout& layout = parts_.layout();
  const at::Tensor params = buffers.zeros("params_part"), grads = buffers.zeros("grads_part");
  const OptimizerState state(buffers, "part");
  // [anchor: cut-and-replicated]
  // What is cut lies in front of what every rank has. So the gradients that need a sum over ranks are one
  // piece.
  params_ = unit_views_of_both(layout, params);
  grads_ = unit_views_of_both(layout, grads);
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    lanes_[i].use(params_, grads_);
    lanes_[i].begin(activations_[i], 1, layout.num_blocks());
  }
  replicated_grads_ = whole_segments(layout, grads);
  for (int unit = 0; unit < layout.num_units(); ++unit) {
    for (const Segment segment : {Segment::sharded, Segment::whole}) {
      OwnedSlice s{.unit = unit, .segment = segment, .range = {0, layout.unit(unit).size(segment)}};
      if (s.empty()) continue;
      s.params = params_[unit].segment(segment);
      s.grads = grads_[unit].segment(segment);
      // Each rank makes its part of the whole model's first weights, and equal copies of the rest.
      take_over(context, layout, state, s);
      slices_.push_back(std::move(s));
    }
  }
  const at::Tensor hashes = buffers.zeros("replica hashes");
  const std::int64_t own = layout.num_units() + 1;
  hashes_ = hashes.narrow(0, 0, own);
  hashes_of_all_ = hashes.narrow(0, own, hashes.numel() - own);
}

}  // namespace sc
