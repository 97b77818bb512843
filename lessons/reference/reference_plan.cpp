// What lesson 00 holds in each order of sums, and its settings.
#include "reference_plan.h"

#include "common/model/activation_plan.h"
#include "lessons/00_one_device/one_device_plan.h"

namespace sc {

FieldTable<ReduceOrder> ReferenceOrderPlans::table() const {
  FieldTable<Options> table;
  table.add(
      {"virtual_ranks", "ranks", "add gradients in the order in which a world of this many ranks would"},
      integer(1, 1024), &Options::virtual_ranks);
  table.add(
      {"reduce_every", "", "sum over ranks once a step (01, 02) or after every micro-batch (ZeRO-2, ZeRO-3)"},
      choice<ReduceEvery>({{"step", ReduceEvery::step}, {"micro_batch", ReduceEvery::micro_batch}}),
      &Options::reduce_every);
  table.add(
      {"groups", "",
       "with reduce_every=micro_batch: so many groups of ranks sum after every micro-batch, and meet once a "
       "step (hybrid sharding)"},
      integer(1, 1024), &Options::groups);
  table.add({"tied_sum", "",
             "split: the head's and the embedding's part of wte's gradient meet at the end of the step "
             "(pipelines)"},
            choice<TiedSum>({{"joint", TiedSum::joint}, {"split", TiedSum::split}}), &Options::tied_sum);
  table.add({"tensor_ranks", "ranks",
             "compute in parts, as so many ranks would that share every matrix (lesson 10)"},
            integer(1, 64), &Options::tensor_ranks);
  table.add(
      {"lanes", "", "micro-batches that those ranks compute together, which a tied matrix's gradient shows"},
      integer(1, 2), &Options::lanes);
  table.add({"tokens", "",
             "of those ranks: between the halves of a block each has a run of the tokens, or all of them"},
            choice<TokenShare>({{"split", TokenShare::split}, {"whole", TokenShare::whole}}),
            &Options::tokens);
  table.add({"context_ranks", "ranks",
             "compute attention in parts, as so many ranks would that share a row's tokens (lesson 12)"},
            integer(1, 64), &Options::context_ranks);
  table.add({"parts", "", "of those ranks: as in lesson 12"},
            choice<Parts>({{"zigzag", Parts::zigzag}, {"contiguous", Parts::contiguous}}), &Options::parts);
  table.add({"exchange", "", "of those ranks: in whose order gradients of keys are added, as in lesson 12"},
            choice<Exchange>({{"ring", Exchange::ring}, {"gather", Exchange::gather}}), &Options::exchange);
  return table;
}

WorldSize ranks_of(const ReduceOrder& order) {
  return WorldSize{static_cast<int>(order.virtual_ranks * order.context_ranks / order.groups)};
}

bool has_head_gradient(const RunShape& shape, const ReduceOrder& order) {
  return order.tied_sum == TiedSum::split && shape.workload.model.tied;
}

ParamLayout layout_of_part(const RunShape& shape, const ReduceOrder& order, int rank) {
  return ParamLayout(shape.workload.model, WorldSize{1},
                     TensorCut{rank, static_cast<int>(order.tensor_ranks)});
}

void plan_part(const RunShape& shape, const ReduceOrder& order, int rank, MemoryPlan& plan) {
  const PrecisionConfig& precision = shape.workload.precision;
  const ParamLayout layout = layout_of_part(shape, order, rank);
  const std::int64_t all = layout.arena_size().value(), rows = layout.vocab_rows().size();
  plan.add({Purpose::parameters, "params_part", all, precision.dtype});
  for (int gradient = 0; gradient < (order.virtual_ranks > 1 ? 2 : 1); ++gradient) {
    plan.add({Purpose::gradients, "grads_part", all, precision.grad_dtype});
    if (has_head_gradient(shape, order))
      plan.add({Purpose::gradients, "grads_part", rows * shape.workload.model.width, precision.grad_dtype});
  }
}

RunShape shape_of_parts(const RunShape& shape) {
  RunShape parts = shape;
  parts.workload.activations = Activations::keep;
  return parts;
}

int gradients_held(const ReduceOrder& order) {
  if (order.context_ranks > 1) return 1 + static_cast<int>(order.context_ranks);
  return 1 + (order.virtual_ranks > 1 ? 1 : 0) + (order.reduce_every == ReduceEvery::micro_batch ? 1 : 0) +
         (order.groups > 1 ? 1 : 0);
}

namespace {

// Virtual ranks are added where their gradients are: nothing travels, so nothing can be converted on its way.
void check_sums(const PrecisionConfig& precision, const ReduceOrder& order) {
  if (order.virtual_ranks == 1 || precision.reduce_dtype == precision.grad_dtype) return;
  refuse_setting("precision.reduce_dtype", "virtual ranks are added in the gradients' dtype",
                 "--set precision.reduce_dtype=same, --set precision.grad_dtype=fp32, or one virtual rank");
}

void check_groups(const ReduceOrder& order) {
  if (order.groups == 1) return;
  if (order.reduce_every == ReduceEvery::step)
    refuse_setting("groups", "ranks that sum once a step have no groups",
                   "--set reduce_every=micro_batch, or groups=1");
  if (order.virtual_ranks % order.groups != 0)
    refuse_setting("groups",
                   std::to_string(order.virtual_ranks) + " virtual ranks cannot be divided into " +
                       std::to_string(order.groups) + " groups",
                   "a number that divides virtual_ranks");
}

void check_parts(const ReduceOrder& order) {
  if (order.tensor_ranks == 1 && order.lanes > 1)
    refuse_setting("lanes", "one device has no messages to hide", "lanes=1, or tensor_ranks=2");
  if (order.tensor_ranks == 1) return;
  if (order.reduce_every != ReduceEvery::step)
    refuse_setting("tensor_ranks", "it goes with reduce_every=step", "leave that out, or tensor_ranks=1");
  if (order.lanes > 1 && (order.virtual_ranks > 1 || order.tied_sum == TiedSum::split))
    refuse_setting("lanes", "two of them go with one virtual rank and tied_sum=joint",
                   "leave those out, or lanes=1");
}

void check_context(const ReduceOrder& order) {
  if (order.context_ranks == 1) return;
  if (order.reduce_every != ReduceEvery::step || order.lanes > 1 ||
      (order.tensor_ranks > 1 && order.virtual_ranks > 1))
    refuse_setting("context_ranks",
                   "it goes with reduce_every=step, lanes=1 and, of tensor_ranks and virtual_ranks, with one",
                   "leave those out, or context_ranks=1");
}

RunShape shape_of_rank(const RunShape& shape, const ReduceOrder& order, int rank) {
  return shape_of_part(shape_of_parts(shape), {rank, static_cast<int>(order.context_ranks), order.parts});
}

// A context rank's tokens, and what its attention holds, in which it has so many heads.
void plan_own_tokens(const RunShape& shape, const ReduceOrder& order, MemoryPlan& plan) {
  plan.add({Purpose::workspace, "part_tokens",
            2 * Formula("B", shape.workload.batch.micro) * Formula("T", shape.workload.batch.sequence) /
                Formula("c", order.context_ranks),
            DType::i64});
}
void plan_meeting(const RunShape& shape, const ReduceOrder& order, std::int64_t heads, MemoryPlan& plan) {
  const ContextCut cut{0, static_cast<int>(order.context_ranks), order.parts};
  plan_hops(shape, cut, heads, plan);
  const Formula keys = keys_of(shape, heads) / Formula("c", cut.ranks);
  plan.add({Purpose::workspace, "part_keys", keys, shape.workload.precision.dtype});
  for (int of = 0; of < cut.ranks; ++of) plan.add({Purpose::workspace, "part_grads_keys", keys, DType::f32});
}

// What context ranks hold beside gradients, all of them.
void plan_context(const RunShape& shape, const ReduceOrder& order, MemoryPlan& plan) {
  for (int rank = 0; rank < order.context_ranks; ++rank) {
    plan_activation_buffers(shape_of_rank(shape, order, rank), plan);
    plan_own_tokens(shape, order, plan);
    plan_meeting(shape, order, shape.workload.model.heads, plan);
  }
}

// What the tensor ranks of one context rank hold together, as one line for each name.
void plan_parts(const RunShape& shape, const ReduceOrder& order, int of_context, MemoryPlan& plan) {
  const RunShape kept = shape_of_rank(shape, order, of_context);
  MemoryPlan parts;
  for (int rank = 0; rank < order.tensor_ranks; ++rank) {
    const ParamLayout layout = layout_of_part(shape, order, rank);
    plan_part(shape, order, rank, parts);
    plan_part_buffers(kept, PartSizes(kept, layout, order.tokens), /*kept=*/false, /*lanes=*/1, parts);
    if (order.context_ranks > 1) plan_meeting(shape, order, layout.heads().size(), plan);
  }
  for (const auto& [buffer, bytes] : parts.by_name())
    plan.add({buffer.purpose, buffer.name, Formula("parts", bytes.value())});
  const ParamLayout first = layout_of_part(shape, order, 0);
  const PartSizes s(kept, first, order.tokens);
  const Formula t("t", order.tensor_ranks), d("d", s.d);
  plan.add(
      {Purpose::workspace, "part_sums", 4 * t * Formula("virtual_ranks", order.virtual_ranks), DType::f64});
  plan.add({Purpose::workspace, "total_of_parts", Formula("B", s.B) * Formula("T", s.T) * d, DType::f32});
  if (order.context_ranks > 1) plan_own_tokens(shape, order, plan);
  if (s.split())
    plan.add({Purpose::workspace, "total_of_whole",
              Formula("parts", bytes_of(first.arena_size(Segment::whole), DType::f32).value())});
  if (order.lanes == 1) return;
  plan.add({Purpose::workspace, "part_waiting", t * Formula("n", s.n()) * d, shape.workload.precision.dtype});
}

}  // namespace

Facts ReferenceOrderPlans::facts(const RunShape& /*shape*/) const {
  Facts facts;
  facts.threads = options_.context_ranks;
  if (options_.context_ranks > 1)
    facts.no_graph = "context ranks are threads, which the host lets take turns";
  return facts;
}

MemoryPlan ReferenceOrderPlans::memory_plan(const RunShape& shape) const {
  MemoryPlan plan;
  check_sums(shape.workload.precision, options_);
  check_groups(options_);
  check_parts(options_);
  check_context(options_);
  const GptConfig& model = shape.workload.model;
  const Formula psi("P", ParamLayout(model, ranks_of(options_)).arena_size()),
      vocab("V", model.vocab_padded()), d("d", model.width),
      gradient = has_head_gradient(shape, options_) ? psi + vocab * d : psi;
  const int held = gradients_held(options_);
  plan_one_device(shape, psi, held > 1 ? held * gradient : gradient, plan);
  const Formula of_data("virtual_ranks", options_.virtual_ranks),
      virtual_ranks = options_.context_ranks > 1 ? Formula("c", options_.context_ranks) * of_data : of_data;
  plan.add({Purpose::workspace, "rank_sums", 4 * virtual_ranks, DType::f64});
  if (options_.tensor_ranks > 1)
    for (int rank = 0; rank < options_.context_ranks; ++rank) plan_parts(shape, options_, rank, plan);
  else if (options_.context_ranks > 1)
    plan_context(shape, options_, plan);
  return plan;
}

CommPlan ReferenceOrderPlans::comm_plan(const RunShape& /*shape*/) const { return {}; }

}  // namespace sc
