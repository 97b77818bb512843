// What a stage holds and sends, by formula.
#include <algorithm>

#include "common/pipeline/share.h"
#include "common/strategy/state_plan.h"

namespace sc {

void plan_stage_states(const RunShape& shape, const Share& share, MemoryPlan& plan) {
  const PrecisionConfig& precision = shape.workload.precision;
  const Formula stage("stage", share.elements);
  plan.add({Purpose::parameters, "params_stage", stage, precision.dtype});
  if (const int older = share.slots.pools.weights - 1; older > 0)
    plan.add({Purpose::stash, "params_stage, older", older > 1 ? older * stage : stage, precision.dtype});
  plan.add({Purpose::gradients, "grads_stage", stage, precision.grad_dtype});
  const bool sharded = share.shards > 1;
  plan_optimizer_state(shape, sharded ? stage / Formula("R", share.shards) : stage, plan,
                       sharded ? "shard" : "stage");
}

void plan_stage(const RunShape& shape, const Share& share, MemoryPlan& plan) {
  plan_stage_states(shape, share, plan);
  plan_activation_buffers(shape, share.buffers, plan);
}

void plan_messages(const RunShape& shape, const Share& share, const std::vector<pipedream::Action>& actions,
                   CommPlan& plan) {
  const Workload& w = shape.workload;
  for (const pipedream::Action& action : actions) {
    if (!pipedream::is_message(action.kind)) continue;
    plan.add({pipedream::is_send(action.kind) ? CommKind::send : CommKind::recv, w.precision.dtype,
              Elements(share.message), shape.mesh.world()},
             share.what(action));
  }
}

void plan_sums(const RunShape& shape, const Share& share, CommPlan& plan) {
  const PrecisionConfig& precision = shape.workload.precision;
  const RankSet data = shape.mesh.group(shape.rank, {Axis::data, Axis::context});
  const auto over_replicas = [&](int unit, std::int64_t elements) {
    const auto of = [&](CommKind kind, DType dtype, OpPurpose purpose) {
      plan.add({kind, dtype, Elements(elements), WorldSize{data.count}, data.stride}, {purpose, unit});
    };
    if (share.shards == 1) return of(CommKind::all_reduce, precision.grad_dtype, OpPurpose::gradients);
    of(CommKind::reduce_scatter, precision.grad_dtype, OpPurpose::gradients);
    of(CommKind::all_gather, precision.dtype, OpPurpose::parameters);
  };
  if (share.replicas > 1) {
    for (int unit = 0; unit < share.layout.num_units(); ++unit) {
      if (share.begin(unit) < 0) continue;
      over_replicas(unit, share.layout.unit(unit).sharded_size);
      over_replicas(unit, share.layout.unit(unit).whole_size);
    }
    over_replicas(0, share.tied_copy);
  }
  if (!share.has_two_ends() || !share.is_an_end()) return;
  // The part of wte that lies in this replica's slice of unit 0.
  const std::int64_t slice = share.layout.unit(0).sharded_size / share.shards,
                     begin = share.shards > 1 ? share.replica * slice : 0,
                     tied = std::min(share.tied, begin + slice) - begin;
  const auto apart = static_cast<int>((share.schedule.stages - 1) * shape.mesh.stride(Axis::stages));
  plan.add({CommKind::all_reduce, precision.grad_dtype, Elements(std::max<std::int64_t>(0, tied)),
            WorldSize{2}, apart},
           {OpPurpose::gradients, 0});
}

}  // namespace sc
