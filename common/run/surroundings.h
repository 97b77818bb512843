// What a run holds besides its strategy, by formula. No torch.
#pragma once

#include <vector>

#include "common/memory/plan.h"
#include "common/strategy/plans.h"

namespace sc::detail {

/// Which communicator the ranks use; `apart` says that they are separate processes.
CommBackend comm_backend(DeviceKind device, bool share_gpu, bool apart);

/// Whether the loss is scaled: only fp16 has so small an exponent range that gradients vanish.
inline bool scales_loss(const RunShape& shape) { return shape.workload.precision.dtype == DType::f16; }

/// Adds what run_lesson itself takes from the ledger: a step's scalars, the loader, the transport's scratch.
void plan_surroundings(const RunShape& shape, MemoryPlan& plan);

/// All that the rank of `shape` holds: the strategy's plan and its surroundings.
MemoryPlan plan_of_run(const Plans& plans, const RunShape& shape);

/// The plans of all ranks in the world of `shape`, in the strategy's mesh: one per set of equal ranks.
std::vector<MemoryPlan> plans_of_world(const Plans& strategy, const RunShape& shape);

/// The axes along which ranks have nearly equal plans; the first rank's is the largest.
inline constexpr std::initializer_list<Axis> kAlike = {Axis::data, Axis::context};

/// Calls f(shape of a rank) for the first rank of each set of equal ranks.
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
