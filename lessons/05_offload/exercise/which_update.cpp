#include "lessons/05_offload/exercise/which_update.h"

#include "common/base/not_solved.h"

namespace sc {

/// One step of a run: forward, backward, and an update that the host makes while the device goes on. Steps
/// count from 0.
///   Exact    forward computes with parameters that have seen the gradients of all steps before.
///   Delayed  from step `warm_steps` on they lack those of the step before.
///   Waits    forward waits for a unit's update when it comes to that unit, not earlier, and not for a later
///            update than it needs.
///   Ahead    before a unit is computed, the following ones that the host has updated are fetched: in order,
///            up to the first one that it has not.
///   Post     the host may overwrite a unit as soon as every forward that needs its old parameters has
///            fetched them.
void offloaded_step(OffloadedRun& run, const UpdateRule& rule, std::int64_t step) {
  // TODO: how many updates does this forward need? And how many forwards need what this step's update
  // overwrites?
  throw NotSolved();
}

}  // namespace sc
