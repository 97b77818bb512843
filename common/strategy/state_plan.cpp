#include "common/strategy/state_plan.h"

namespace sc {

void plan_optimizer_state(const RunShape& shape, Elements elements, MemoryPlan& plan, const std::string& of,
                          const std::string& where) {
  const auto fp32 = [&](Purpose purpose, const char* name) {
    plan.add(purpose, name + where, std::to_string(size_of(DType::f32)) + " " + of,
             bytes_of(elements, DType::f32));
  };
  if (shape.workload.precision.has_master()) fp32(Purpose::master, "master_");
  fp32(Purpose::momentum, "momentum_");
  fp32(Purpose::variance, "variance_");
}

}  // namespace sc
