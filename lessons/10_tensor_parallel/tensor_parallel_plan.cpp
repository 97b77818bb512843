// What lesson 10 holds and sends, and its settings.
#include "tensor_parallel_plan.h"

#include <algorithm>

#include "common/model/activation_plan.h"
#include "common/strategy/gradient_dtype.h"
#include "common/strategy/state_plan.h"

namespace sc {

FieldTable<TensorParallelOptions> TensorParallelPlans::table() const {
  FieldTable<Options> table;
  table.add(
      {"tokens", "",
       "between the halves of a block each rank has a run of the tokens (split) or all of them (whole)"},
      choice<TokenShare>({{"split", TokenShare::split}, {"whole", TokenShare::whole}}), &Options::tokens);
  table.add({"gathered", "", "norms of all tokens are gathered again for backward, or kept from forward"},
            choice<NormsForBackward>({{"again", NormsForBackward::again}, {"kept", NormsForBackward::kept}}),
            &Options::gathered);
  table.add({"lanes", "", "micro-batches that take turns: one's messages travel behind the other's products"},
            integer(1, 2), &Options::lanes);
  table.add({"verify_replicas", "steps",
             "every k steps the ranks compare hashes of what each has whole, and of the tokens; 0 = never"},
            integer(0), &Options::verify_replicas);
  return table;
}

ParamLayout tensor_layout(const RunShape& shape) {
  return ParamLayout(shape.workload.model, WorldSize{1}, cut_of(shape));
}

Facts TensorParallelPlans::facts(const RunShape& /*shape*/) const {
  return {.links = {}, .smaller = {"tokens=split gathered=again"}};
}

Contents TensorParallelPlans::contents(const RunShape& /*shape*/) const {
  return {.parameters = Extent::slice, .states = Extent::slice, .cut = true};
}

namespace {

void check_lanes(const RunShape& shape, std::int64_t lanes) {
  const BatchConfig& batch = shape.workload.batch;
  const std::int64_t micro_batches = micro_batches_of(shape);
  if (micro_batches % lanes == 0) return;
  const std::string half =
      batch.micro % 2 == 0 ? "--set batch.micro=" + std::to_string(batch.micro / 2) + ", or " : "";
  refuse_setting("lanes",
                 "two lanes take turns with a micro-batch each, and a step has " +
                     std::to_string(micro_batches) + (micro_batches == 1 ? " micro-batch" : " micro-batches"),
                 half + "--set lanes=1");
}

}  // namespace

MemoryPlan TensorParallelPlans::memory_plan(const RunShape& shape) const {
  refuse_other_reduce_dtype(shape);
  check_lanes(shape, options_.lanes);
  MemoryPlan plan;
  const PrecisionConfig& precision = shape.workload.precision;
  const ParamLayout layout = tensor_layout(shape);
  const Formula psi("P", layout.arena_size()), layers("L", layout.num_blocks()), t("t", shape.mesh.world());
  plan.add({Purpose::parameters, "params_part", psi, precision.dtype});
  plan.add({Purpose::gradients, "grads_part", psi, precision.grad_dtype});
  plan_optimizer_state(shape, psi, plan, "part");
  plan_part_buffers(shape, PartSizes(shape, layout, options_.tokens), options_.kept(), options_.lanes, plan);
  plan.add(step_sums());
  // Ranks compare a hash of each unit's replicated parameters, and one of the step's tokens.
  plan.add({Purpose::workspace, "replica hashes", (layers + 3) * (1 + t), DType::i64});
  return plan;
}

// [anchor: ten-messages-a-block]
// A block's forward has a gather before each half and a sum behind it. Its backward gathers the norms again,
// and has a sum and a gather of gradients behind each half. What is recomputed has forward's messages once
// more, and so the MLP's norms are there for its weights.
void plan_tensor_messages(const RunShape& shape, const PartSizes& s, const BlockRun& run, bool kept,
                          CommPlan& plan) {
  const WorldSize group{static_cast<int>(s.ranks)};
  const std::int64_t M = micro_batches_of(shape);
  const auto add = [&](CommKind kind, OpPurpose purpose, int unit, std::int64_t times) {
    plan.add({kind, shape.workload.precision.dtype, Elements(s.N * s.d), group}, {purpose, unit}, M * times);
  };
  // Where every rank has all tokens there is nothing to gather.
  const auto gathers = [&](OpPurpose purpose, int unit, std::int64_t times) {
    if (s.split()) add(CommKind::all_gather, purpose, unit, times);
  };
  const auto sums = [&](OpPurpose purpose, int unit, std::int64_t times) {
    add(s.split() ? CommKind::reduce_scatter : CommKind::all_reduce, purpose, unit, times);
  };
  const bool recompute = shape.workload.activations == Activations::recompute;
  const int again = kept ? 0 : recompute ? 1 : 2, behind = run.last + 1;
  if (run.embeds) sums(OpPurpose::activations, 0, 1);
  for (int unit = run.first; unit <= run.last; ++unit) {
    const bool leaves = unit == run.first && !run.embeds;  // its input's gradient goes to the stage before
    gathers(OpPurpose::activations, unit, (recompute ? 4 : 2) + again);
    gathers(OpPurpose::activation_gradients, unit, leaves ? 1 : 2);
    sums(OpPurpose::activations, unit, recompute ? 3 : 2);
    sums(OpPurpose::activation_gradients, unit, 2);
  }
  gathers(OpPurpose::activation_gradients, behind, 1);
  if (!run.head) return;
  gathers(OpPurpose::activations, behind, 1);
  sums(OpPurpose::activation_gradients, behind, 1);
  for (std::int64_t begin = 0; begin < s.N; begin += s.chunk)
    plan.add(
        {CommKind::all_gather, DType::f32, Elements(2 * s.ranks * std::min(s.chunk, s.N - begin)), group},
        {OpPurpose::sums, behind}, M);
}

CommPlan TensorParallelPlans::comm_plan(const RunShape& shape) const {
  CommPlan plan;
  const ParamLayout layout = tensor_layout(shape);
  const PartSizes s(shape, layout, options_.tokens);
  plan_tensor_messages(shape, s, {1, layout.num_blocks(), true, true}, options_.kept(), plan);
  if (s.split())
    plan.add({CommKind::all_reduce, shape.workload.precision.grad_dtype, layout.arena_size(Segment::whole),
              shape.mesh.world()},
             {OpPurpose::gradients});
  plan.add({CommKind::all_reduce, DType::f64, Elements(4), shape.mesh.world()}, {OpPurpose::sums});
  return plan;
}

}  // namespace sc
