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

/// All that the rank of `shape` holds: the strategy's plan and its surroundings.
MemoryPlan plan_of_run(const Plans& plans, const RunShape& shape);

/// All that ranks hold, one of each that are alike, in the world of `shape`, which the strategy divides.
std::vector<MemoryPlan> plans_of_world(const Plans& strategy, const RunShape& shape);

/// Ranks that differ on these axes alone have plans that are nearly equal, and the first one's is the
/// largest.
inline constexpr std::initializer_list<Axis> kAlike = {Axis::data, Axis::context};

/// f(shape of a rank), of the first of each set of ranks that are alike.
template <class Of>
auto of_world(RunShape shape, const Of& of) {
  std::vector<decltype(of(shape))> plans;
  for (const Rank first : shape.mesh.firsts(kAlike)) {
    shape.rank = first;
    plans.push_back(of(shape));
  }
  return plans;
}

}  // namespace sc::detail
