// What a stage holds, and sends.
#include <string>

#include "common/pipeline/share.h"
#include "common/strategy/state_plan.h"

namespace sc {

void plan_stage_states(const RunShape& shape, const Share& share, MemoryPlan& plan) {
  const PrecisionConfig& precision = shape.workload.precision;
  const auto whole = [&](Purpose purpose, const char* name, DType dtype, int times = 1) {
    plan.add(purpose, name,
             std::to_string(size_of(dtype)) + (times > 1 ? " x " + std::to_string(times) : "") + " stage",
             times * bytes_of(share.elements, dtype));
  };
  whole(Purpose::parameters, "params_stage", precision.dtype);
  if (const int older = share.slots.pools.weights - 1; older > 0)
    whole(Purpose::stash, "params_stage, older", precision.dtype, older);
  whole(Purpose::gradients, "grads_stage", precision.grad_dtype);
  const bool sharded = share.shards > 1;
  plan_optimizer_state(shape, share.elements / share.shards, plan, sharded ? "stage/R" : "stage",
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
              Elements(share.message), shape.world},
             share.what(action));
  }
}

}  // namespace sc
