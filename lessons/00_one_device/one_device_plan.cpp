// What lesson 00 holds, and its settings.
#include "common/base/check.h"
#include "common/model/unit_views.h"
#include "reference_order.h"

namespace sc {

FieldTable<ReduceOrder> ReferenceOrder::fields() {
  FieldTable<Options> table;
  table.add(
      {"virtual_ranks", "ranks", "add gradients in the order in which a world of this many ranks would"},
      integer(1, 1024), &Options::virtual_ranks);
  table.add(
      {"reduce_every", "", "sum over ranks once a step (01, 02) or after every micro-batch (ZeRO-2, ZeRO-3)"},
      choice<ReduceEvery>({{"step", ReduceEvery::step}, {"micro_batch", ReduceEvery::micro_batch}}),
      &Options::reduce_every);
  table.add({"tied_sum", "",
             "split: the head's and the embedding's part of wte's gradient meet at the end of the step "
             "(pipelines)"},
            choice<TiedSum>({{"joint", TiedSum::joint}, {"split", TiedSum::split}}), &Options::tied_sum);
  return table;
}

namespace {

WorldSize ranks_of(const ReduceOrder& order) { return WorldSize{static_cast<int>(order.virtual_ranks)}; }

// The head's own part of wte's gradient.
std::int64_t head_elements(const RunShape& shape, const ReduceOrder& order) {
  const GptConfig& model = shape.workload.model;
  return order.tied_sum == TiedSum::split && model.tied ? model.vocab_padded() * model.width : 0;
}

// The sum itself; the virtual rank that computes now (W > 1); the sum over ranks of one micro-batch
// (micro_batch).
int gradients_held(const ReduceOrder& order) {
  return 1 + (order.virtual_ranks > 1 ? 1 : 0) + (order.reduce_every == ReduceEvery::micro_batch ? 1 : 0);
}

// Virtual ranks are added where their gradients are; nothing travels that could be converted.
void check_sums(const PrecisionConfig& precision, const ReduceOrder& order) {
  if (order.virtual_ranks == 1 || precision.reduce_dtype == precision.grad_dtype) return;
  throw InputError(ExitCode::usage, "precision.reduce_dtype",
                   "virtual ranks are added in the gradients' dtype",
                   "--set precision.reduce_dtype=same, --set precision.grad_dtype=fp32, or one virtual rank");
}

}  // namespace

MemoryPlan ReferenceOrder::memory_plan(const RunShape& shape, const Options& order) {
  MemoryPlan plan;
  const PrecisionConfig& precision = shape.workload.precision;
  check_sums(precision, order);
  const Elements psi = ParamLayout(shape.workload.model, ranks_of(order)).arena_size();
  const Elements gradient = psi + Elements(head_elements(shape, order));
  const int held = gradients_held(order);
  plan.add(Purpose::parameters, "params_full", std::to_string(size_of(precision.dtype)) + " P",
           bytes_of(psi, precision.dtype));
  plan.add(Purpose::gradients, "grads_full",
           std::to_string(held * size_of(precision.grad_dtype)) + " P" + (gradient > psi ? " + heads" : ""),
           bytes_of(gradient, precision.grad_dtype) * held);
  OptimizerState::plan(shape, psi, plan, "full");
  plan_activation_buffers(shape, plan);
  plan.add(Purpose::workspace, "rank_sums", "4 numbers a virtual rank",
           Bytes(4 * size_of(DType::f64) * order.virtual_ranks));
  return plan;
}

CommPlan ReferenceOrder::comm_plan(const RunShape& /*shape*/, const Options& /*order*/) { return {}; }

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
