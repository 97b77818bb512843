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
  const Elements psi = layout_.arena_size();
  const PrecisionConfig& precision = context.shape.workload.precision;
  Ledger& ledger = context.ledger;
  const at::Tensor params = ledger.zeros(Purpose::parameters, "params_part", {psi.value()}, precision.dtype),
                   grads =
                       ledger.zeros(Purpose::gradients, "grads_part", {psi.value()}, precision.grad_dtype);
  const OptimizerState state(context, psi, "part");
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
  const std::int64_t hashes = hashes_of(context.shape), ranks = to_int(context.shape.mesh.world());
  hashes_ = ledger.zeros(Purpose::workspace, "replica hashes", {hashes}, DType::i64);
  hashes_of_all_ = ledger.zeros(Purpose::workspace, "replica hashes", {ranks * hashes}, DType::i64);
}

}  // namespace sc
