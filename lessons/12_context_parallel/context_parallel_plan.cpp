// What lesson 12 holds and sends, and its settings.
#include "context_parallel_plan.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>

#include "common/base/text.h"
#include "common/model/activation_plan.h"
#include "common/strategy/gradient_dtype.h"
#include "common/strategy/state_plan.h"

namespace sc {

FieldTable<ContextParallelOptions> ContextParallelPlans::table() const {
  FieldTable<Options> table;
  table.add({"parts", "",
             "of a row each rank has an early and a late chunk (zigzag), or one run of tokens (contiguous)"},
            choice<Parts>({{"zigzag", Parts::zigzag}, {"contiguous", Parts::contiguous}}), &Options::parts);
  table.add({"exchange", "", "keys and values go from rank to rank (ring), or to all at once (gather)"},
            choice<Exchange>({{"ring", Exchange::ring}, {"gather", Exchange::gather}}), &Options::exchange);
  table.add({"gathered", "", "with exchange=gather: gathered again for backward, or kept from forward"},
            choice<KeysForBackward>({{"again", KeysForBackward::again}, {"kept", KeysForBackward::kept}}),
            &Options::gathered);
  table.add(
      {"verify_replicas", "steps", "every k steps all ranks compare a hash of their parameters; 0 = never"},
      integer(0), &Options::verify_replicas);
  return table;
}

Facts ContextParallelPlans::facts(const RunShape& shape) const {
  return {.links = {}, .smaller = {"exchange=ring"}, .cut = context_cut_of(shape, options_.parts)};
}

void plan_exchange(const RunShape& shape, const ContextParallelOptions& options, std::int64_t heads,
                   MemoryPlan& plan) {
  if (options.gathered == KeysForBackward::kept && options.exchange == Exchange::ring)
    refuse_setting("gathered", "what goes round is not gathered", "exchange=gather, or gathered=again");
  const ContextCut cut = context_cut_of(shape, options.parts);
  const DType dtype = shape.workload.precision.dtype;
  const Formula c("c", cut.ranks), all = keys_of(shape, heads);
  const std::int64_t in = std::min(2, cut.ranks - 1);  // arrive at a time
  const auto keys = [&](const Formula& elements) {
    plan.add({Purpose::activations, "keys_values", elements, dtype});
  };
  const auto gradients = [&](const Formula& elements) {
    plan.add({Purpose::workspace, "grads_keys_values", elements, DType::f32});
  };
  if (options.exchange == Exchange::ring) {
    for (std::int64_t i = 0; i < 1 + in; ++i) keys(all / c);
    for (std::int64_t i = 0; in > 0 && i < 2; ++i) gradients(all / c);
  } else {
    const std::int64_t kept = options.gathered == KeysForBackward::kept ? shape.workload.model.layers : 1;
    for (std::int64_t i = 0; i < kept; ++i) keys(all);
    gradients(all);
  }
  plan_hops(shape, cut, heads, plan);
}

Buffer own_tokens_of(const RunShape& shape, std::int64_t micro_batches) {
  const Formula of_one = 2 * Formula("B", shape.workload.batch.micro) *
                         Formula("T", shape.workload.batch.sequence) /
                         Formula("c", shape.mesh.size(Axis::context));
  return {Purpose::workspace, "own_tokens",
          micro_batches == 1 ? of_one : Formula("M", micro_batches) * of_one, DType::i64};
}

MemoryPlan ContextParallelPlans::memory_plan(const RunShape& shape) const {
  refuse_other_reduce_dtype(shape);
  MemoryPlan plan;
  const PrecisionConfig& precision = shape.workload.precision;
  const ContextCut cut = context_cut_of(shape, options_.parts);
  const Formula P("P", layout_of(shape).arena_size());
  plan.add({Purpose::parameters, "params_full", P, precision.dtype});
  plan.add({Purpose::gradients, "grads_full", P, precision.grad_dtype});
  plan_optimizer_state(shape, P, plan, "full");
  plan_activation_buffers(shape_of_part(shape, cut), plan);
  plan_exchange(shape, options_, shape.workload.model.heads, plan);
  plan.add(own_tokens_of(shape, 1));
  plan.add({Purpose::workspace, "replica hashes", 1 + Formula("N", shape.mesh.world()), DType::i64});
  return plan;
}

// [anchor: three-times-round]
// Keys and values go round in forward and again in backward, in forward twice where it is computed twice;
// their gradients once, in fp32. A ring's last hop has nobody to send to, and gradients end at home.
void plan_exchange_messages(const RunShape& shape, const ContextParallelOptions& options, std::int64_t heads,
                            int first, int last, CommPlan& plan) {
  const ContextCut cut = context_cut_of(shape, options.parts);
  const WorldSize group{cut.ranks};
  const std::int64_t M = micro_batches_of(shape), hops = cut.ranks - 1;
  const auto stride = static_cast<int>(shape.mesh.stride(Axis::context));
  const bool ring = options.exchange == Exchange::ring, kept = options.gathered == KeysForBackward::kept,
             recompute = shape.workload.activations == Activations::recompute;
  const std::int64_t rounds = (recompute ? 2 : 1) + (kept ? 0 : 1);
  const Elements all(keys_of(shape, heads).value()), own(all.value() / cut.ranks);
  const DType dtype = shape.workload.precision.dtype;
  for (int unit = first; unit <= last; ++unit) {
    const What keys{OpPurpose::activations, unit}, gradients{OpPurpose::activation_gradients, unit};
    if (ring) {
      for (const CommKind kind : {CommKind::send, CommKind::recv}) {
        plan.add({kind, dtype, own, group, stride}, keys, M * hops * rounds);
        plan.add({kind, DType::f32, own, group, stride}, gradients, M * hops);
      }
    } else {
      plan.add({CommKind::all_gather, dtype, all, group, stride}, keys, M * rounds);
      plan.add({CommKind::reduce_scatter, DType::f32, all, group, stride}, gradients, M);
    }
  }
}

CommPlan ContextParallelPlans::comm_plan(const RunShape& shape) const {
  CommPlan plan;
  const ParamLayout layout = layout_of(shape);
  plan_exchange_messages(shape, options_, shape.workload.model.heads, 1, layout.num_blocks(), plan);
  for (int unit = 0; unit < layout.num_units(); ++unit)
    plan.add({CommKind::all_reduce, shape.workload.precision.grad_dtype,
              Elements(layout.unit(unit).sharded_size), shape.mesh.world()},
             {OpPurpose::gradients, unit});
  plan.add({CommKind::all_reduce, DType::f64, Elements(4), shape.mesh.world()}, {OpPurpose::sums});
  return plan;
}

std::string ContextParallelPlans::predict(const RunShape& shape) const {
  const std::int64_t tokens = shape.workload.batch.sequence;
  ContextCut cut = context_cut_of(shape, options_.parts);
  std::vector<std::string> counts;
  for (cut.rank = 0; cut.rank < cut.ranks; ++cut.rank) counts.push_back(human_count(cut.token_pairs(tokens)));
  return fmt::format("pairs of tokens in a row, by rank\n  {}: mean over largest {:.0f} %\n",
                     fmt::join(counts, ", "), 100 * balance_of(cut, tokens));
}

}  // namespace sc
