#include "common/strategy/group_plan.h"

#include "common/comm/scratch.h"

namespace sc {

void plan_group(const RunShape& shape, WorldSize ranks, MemoryPlan& plan, const std::string& of) {
  if (shape.comm != CommBackend::local && to_int(ranks) > 1) {
    plan.add(Purpose::communication, "mpi scratch", "4 (" + of + " - 1) 256 KiB", mpi_scratch_bytes(ranks),
             shape.device == DeviceKind::cpu ? Place::device : Place::pinned);
  }
  if (shape.comm == CommBackend::staged) {
    plan.add(Purpose::communication, "staged scratch", "2 x " + of + " MiB", staged_scratch_bytes(ranks),
             Place::pinned);
  }
}

}  // namespace sc
