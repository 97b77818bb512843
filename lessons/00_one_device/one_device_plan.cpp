#include "one_device_plan.h"

#include "common/model/activation_plan.h"
#include "common/strategy/state_plan.h"

namespace sc {

void plan_one_device(const RunShape& shape, const Formula& params, const Formula& grads, MemoryPlan& plan) {
  const PrecisionConfig& precision = shape.workload.precision;
  plan.add({Purpose::parameters, "params_full", params, precision.dtype});
  plan.add({Purpose::gradients, "grads_full", grads, precision.grad_dtype});
  plan_optimizer_state(shape, params, plan, "full");
  plan_activation_buffers(shape, plan);
}

}  // namespace sc
