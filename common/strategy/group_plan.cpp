#include "common/strategy/group_plan.h"

#include "common/comm/scratch.h"

namespace sc {

void plan_group(const RunShape& shape, const Formula& ranks, MemoryPlan& plan) {
  if (shape.comm != CommBackend::local && ranks.value() > 1) {
    plan.add({Purpose::communication, "mpi scratch",
              kSumPiecesInFlight * (ranks - 1) * (kSumPiece / 1024) * Formula("KiB", 1024), DType::u8,
              shape.device == DeviceKind::cpu ? Place::device : Place::pinned});
  }
  if (shape.comm == CommBackend::staged) {
    plan.add({Purpose::communication, "staged scratch", times(2, ranks) * Formula("MiB", kStagedPiece),
              DType::u8, Place::pinned});
  }
}

}  // namespace sc
