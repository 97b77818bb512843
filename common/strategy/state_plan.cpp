#include "common/strategy/state_plan.h"

namespace sc {

void plan_optimizer_state(const RunShape& shape, const Formula& elements, MemoryPlan& plan,
                          const std::string& where) {
  if (shape.workload.precision.has_master())
    plan.add({Purpose::master, "master_" + where, elements, DType::f32});
  plan.add({Purpose::momentum, "momentum_" + where, elements, DType::f32});
  plan.add({Purpose::variance, "variance_" + where, elements, DType::f32});
}

}  // namespace sc
