// What lesson 00 takes from the ledger, as one_device_plan.cpp says.
#include "common/model/unit_views.h"
#include "reference_order.h"

namespace sc {

// [anchor: four-vectors]
// Everything that a model is made of: one arena a purpose, from the ledger, seen unit by unit. Later lessons
// move these vectors elsewhere, and change nothing of what is computed from them.
OneDevice::OneDevice(RunContext& context, WorldSize ranks)
    : context_(context),
      layout_(context.shape.workload.model, ranks),
      passes_(context, layout_),
      sums_(passes_.sums()) {
  const Elements psi = layout_.arena_size();
  const PrecisionConfig& precision = context.shape.workload.precision;
  const at::Tensor params =
      context.ledger.zeros(Purpose::parameters, "params_full", {psi.value()}, precision.dtype);
  grads_arena_ = context.ledger.zeros(Purpose::gradients, "grads_full", {psi.value()}, precision.grad_dtype);
  // What AdamW steps: an fp32 master beside 16-bit parameters, else the parameters themselves; and two
  // moments.
  const OptimizerState state(context, psi, "full");
  params_full_ = unit_views(layout_, params);
  grads_full_ = unit_views(layout_, grads_arena_);
  for (int unit = 0; unit < layout_.num_units(); ++unit) {
    OwnedSlice s = whole_unit(layout_, unit);
    s.params = params_full_[unit].sharded;
    s.grads = grads_full_[unit].sharded;
    take_over(context, layout_, state, s);
    slices_.push_back(std::move(s));
  }
}

ReferenceOrder::ReferenceOrder(RunContext& context, const Options& order)
    : OneDevice(context, ranks_of(order)), order_(order) {
  const DType dtype = context.shape.workload.precision.grad_dtype;
  const auto gradient = [&](std::int64_t elements) {
    return elements == 0 ? at::Tensor()
                         : context.ledger.zeros(Purpose::gradients, "grads_full", {elements}, dtype);
  };
  const std::int64_t head = head_elements(context.shape, order);
  gradients_.push_back(make_gradient(grads_arena_, gradient(head)));
  for (int i = 1; i < gradients_held(order); ++i)
    gradients_.push_back(make_gradient(gradient(grads_arena_.numel()), gradient(head)));
  for (std::int64_t r = 0; r < order.virtual_ranks; ++r)
    rank_sums_.push_back(context.ledger.zeros(Purpose::workspace, "rank_sums", {4}, DType::f64));
  if (order.tensor_ranks > 1) parts_ = std::make_unique<TensorOrder>(context, layout_, order);
}

TensorOrder::Part::Part(const RunContext& context, const ReduceOrder& order, int rank)
    : layout(layout_of_part(context.shape, order, rank)),
      gpt(context.shape, layout, PartSizes(context.shape, layout, order.tokens)),
      buffers(shape_of_parts(context.shape), gpt.sizes(), /*kept=*/false, context.ledger),
      gradients(order.virtual_ranks > 1 ? 2 : 1) {
  for (std::int64_t r = 0; r < order.virtual_ranks; ++r)
    sums.push_back(context.ledger.zeros(Purpose::workspace, "part_sums", {4}, DType::f64));
  if (order.lanes > 1)
    waiting = context.ledger.zeros(Purpose::workspace, "part_waiting", gradient().own.sizes(),
                                   context.shape.workload.precision.dtype);
  const PrecisionConfig& precision = context.shape.workload.precision;
  const std::int64_t all = layout.arena_size().value();
  params_arena = context.ledger.zeros(Purpose::parameters, "params_part", {all}, precision.dtype);
  params = unit_views_of_both(layout, params_arena);
  const std::int64_t head = head_elements_of_part(context.shape, order, layout);
  for (Gradient& gradient : gradients) {
    gradient.arena = context.ledger.zeros(Purpose::gradients, "grads_part", {all}, precision.grad_dtype);
    if (head > 0)
      gradient.head_arena =
          context.ledger.zeros(Purpose::gradients, "grads_part", {head}, precision.grad_dtype);
    gradient.unit = unit_views_of_both(layout, gradient.arena);
  }
}

BlockSaved& TensorOrder::Part::saved(int unit) {
  const auto block = static_cast<std::size_t>(unit - 1);
  buffers.saved[block].x = block == 0 ? buffers.input : buffers.x[block - 1];
  return buffers.saved[block];
}

TensorOrder::TensorOrder(const RunContext& context, const ParamLayout& whole, const ReduceOrder& order)
    : whole_(whole), order_(order) {
  for (int rank = 0; rank < order.tensor_ranks; ++rank) parts_.emplace_back(context, order, rank);
  const PartSizes& s = parts_[0].gpt.sizes();
  split_ = s.split();
  total_ = context.ledger.zeros(Purpose::workspace, "total_of_parts", {s.N, s.d}, DType::f32);
  if (split_)
    total_of_whole_ = context.ledger.zeros(Purpose::workspace, "total_of_whole",
                                           {parts_[0].layout.arena_size(Segment::whole).value()}, DType::f32);
}

// head_matrix() finds wte's matrix at the beginning of unit 0's vector, so that a vector of the matrix alone
// will do.
ReferenceOrder::Gradient ReferenceOrder::make_gradient(const at::Tensor& arena,
                                                       const at::Tensor& head_arena) const {
  Gradient g{arena, head_arena, unit_views(layout_, arena), unit_views(layout_, arena)};
  if (head_arena.defined()) g.head[0] = {head_arena, {}};
  return g;
}

}  // namespace sc
