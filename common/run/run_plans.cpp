#include "common/run/run_plans.h"

#include "common/model/param_layout.h"
#include "common/run/planning.h"
#include "common/run/surroundings.h"

namespace sc::detail {
namespace {

// The number of elements whose optimizer states a rank has, at any place.
std::int64_t elements_of_states(const RankPlan& rank) {
  Bytes bytes;
  for (const Buffer& item : rank.memory.items())
    if (item.purpose == Purpose::momentum) bytes += item.bytes();
  return bytes.value() / size_of(DType::f32);
}

// The elements of each optimizer state that this rank saves: its own, or its part of what replicas share.
std::int64_t elements_copied(const RunPlans& plans, const RunShape& shape) {
  const std::int64_t replicas = shape.mesh.group(shape.rank, kAlike).count,
                     held = elements_of_states(plans.own);
  std::int64_t all = 0;
  for (const RankPlan& rank : plans.world) all += replicas * elements_of_states(rank);
  const std::int64_t model = ParamLayout(shape.workload.model, WorldSize{1}).arena_size().value();
  const bool replicated = replicas > 1 && all >= replicas * model;
  // A rank's part of each unit is rounded up.
  return replicated ? ceil_div(held, replicas) + 2 * (shape.workload.model.layers + 2) : held;
}

void add_copy(const RunShape& shape, RunPlans& plans) {
  MemoryPlan& memory = plans.own.memory;
  const bool from_gpu =
      shape.device == DeviceKind::cuda && memory.of(Purpose::momentum, Place::device).value() > 0;
  const std::int64_t pending = plans.facts.pending.value();
  const Formula states = 12 * Formula("copied", elements_copied(plans, shape));
  memory.add_nonempty({Purpose::checkpoint, "copy for the next checkpoint",
                       pending > 0 ? states + Formula("pending", pending) : states, DType::u8,
                       from_gpu ? Place::pinned : Place::host});
}

}  // namespace

RunPlans run_plans_of(const Plans& plans, const RunShape& shape, const CheckpointFlags& asked) {
  RunPlans run{.facts = plans.facts(shape),
               .world = rank_plans_of(plans, shape),
               .own = plan_of_set(RankSet::of({shape.rank}), plans, shape),
               .contents = plans.contents(shape)};
  if (asked.every > 0 && asked.async) add_copy(shape, run);
  return run;
}

}  // namespace sc::detail
