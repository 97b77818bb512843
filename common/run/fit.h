// What would fit below --memory-cap, or in the memory of this machine or GPU, where a plan does not: found by
// evaluating plans.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/memory/plan.h"
#include "common/strategy/plans.h"

namespace sc {

/// A run that is limited: each rank by `cap`, or all `sharing` ranks of a machine or GPU together.
struct LimitedRun {
  RunShape shape;
  Bytes cap;
  std::string place = {};    // that has no more free: "this machine", "GPU 0"; empty: --memory-cap says so
  std::int64_t sharing = 0;  // of the shape's world; 0: each rank has the cap to itself
  std::vector<StrategyPlans> smaller =
      {};  // this strategy with settings that take less, what costs least first
  std::vector<StrategyPlans> strategies = {};  // that divide more
  std::int64_t virtual_ranks = 1;              // for each rank
  std::function<Mesh(WorldSize)> mesh = [](WorldSize world) { return Mesh(world); };
  bool one_rank_only = false;
  /// All that ranks would hold, one of each that are alike.
  std::function<std::vector<MemoryPlan>(const RunShape&)> plans;
};

/// Something to change, and what a rank would then hold.
struct Change {
  std::string what;  // "--set batch.micro=2"
  Bytes bytes;
};

/// What would fit, what costs least first: settings of this strategy; rows of a micro-batch, activations
/// computed again, both; more ranks of this strategy; a strategy that divides more. The global batch stays.
/// May be empty.
std::vector<Change> changes_that_fit(const LimitedRun& run);

/// The lines of those changes, and the cap that would do where each rank has one.
///   total  of the rank that holds most as it is
std::string describe_changes(const LimitedRun& run, Bytes total);

///   stages  what ranks hold as it is: `plans` of the shape
///   Errors  InputError(missing) if the plan is beyond its limit: its bytes by purpose, what is missing, and
///           the changes that fit.
void refuse_what_does_not_fit(const LimitedRun& run, const std::vector<MemoryPlan>& stages);

}  // namespace sc
