// What a run has beside its strategy, by formula. No torch.
#pragma once

#include <vector>

#include "common/memory/plan.h"
#include "common/strategy/plans.h"

namespace sc::detail {

/// What the ranks communicate through. apart: they are processes of their own.
CommBackend comm_backend(DeviceKind device, bool share_gpu, bool apart);

/// fp16 alone has so few exponents that gradients vanish.
inline bool scales_loss(const RunShape& shape) { return shape.workload.precision.dtype == DType::f16; }

/// Adds what run_lesson itself takes from the ledger beside the strategy: a step's scalars, the loader, the
/// transport's scratch.
void plan_surroundings(const RunShape& shape, MemoryPlan& plan);

/// All that the first rank of each stage holds, and so every rank of it, in the world of `shape`, which the strategy divides.
std::vector<MemoryPlan> plans_of_stages(const Plans& strategy, const RunShape& shape);

/// f(shape of the first rank of each stage).
template <class Of>
auto of_stages(RunShape shape, const Of& of) {
  std::vector<decltype(of(shape))> plans;
  for (std::int64_t stage = 0; stage < shape.stages; ++stage) {
    shape.rank = Rank{static_cast<int>(stage * data_ranks(shape))};
    plans.push_back(of(shape));
  }
  return plans;
}

}  // namespace sc::detail
