// Finds, by evaluating plans, which changes would make a run fit below --memory-cap, or in this machine's or
// GPU's memory.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/memory/plan.h"
#include "common/strategy/plans.h"

namespace sc {

/// A run with a memory limit: `cap` for each rank, or for all `sharing` ranks of a machine or GPU together.
struct LimitedRun {
  RunShape shape;
  Bytes cap;
  std::string place = {};  // what has that limit: "this machine", "GPU 0"; empty for --memory-cap
  // How many ranks of the shape's world share the cap; 0: each rank has it to itself.
  std::int64_t sharing = 0;
  // This strategy with settings that need less memory, the cheapest first.
  std::vector<StrategyPlans> smaller = {};
  std::vector<StrategyPlans> strategies = {};  // strategies that shard more
  std::int64_t virtual_ranks = 1;              // per rank
  std::function<Mesh(WorldSize)> mesh = [](WorldSize world) { return Mesh(world); };
  bool one_rank_only = false;
  /// A function that plans all ranks of a shape, with one plan for each set of equal ranks.
  std::function<std::vector<MemoryPlan>(const RunShape&)> plans;
};

struct Change {
  std::string what;  // e.g. "--set batch.micro=2"
  Bytes bytes;
};

/// The changes that make the run fit, the cheapest first: settings of this strategy; smaller micro-batches,
/// recomputed activations, both; more ranks; a strategy that shards more. The global batch stays. May be
/// empty.
std::vector<Change> changes_that_fit(const LimitedRun& run);

/// The lines about changes that fit, and about the cap that would suffice if each rank has one. `total` are
/// the bytes of the rank that holds most in the unchanged run.
std::string describe_changes(const LimitedRun& run, Bytes total);

/// Refuses a run that does not fit.
///   stages  what ranks hold in the unchanged run: `plans` of the shape
///   Errors  InputError(missing) if the plan exceeds its limit: its bytes by purpose, what is missing, and
///           the changes that fit.
void refuse_what_does_not_fit(const LimitedRun& run, const std::vector<MemoryPlan>& stages);

}  // namespace sc
