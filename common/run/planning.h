// Checks and plans a run before it has ranks. No torch.
#pragma once

#include <string>
#include <vector>

#include "common/config/command_line.h"
#include "common/records/report.h"
#include "common/strategy/plans.h"

namespace sc::detail {

struct Prepared {
  ResolvedConfig config;
  BatchPlan batch;
  RunShape shape;  // for its plan
  Facts known;
};

/// Checks a configuration. `computes_on` is the device that a run would use.
///   Errors  InputError (exit 64) for contradictions, or for what the strategy cannot do.
Prepared prepare(const Program& program, const Plans& plans, const CommandLine& line, ResolvedConfig config,
                 std::int64_t world, DeviceChoice computes_on);

/// The plan of the first of these ranks; the rank in `shape` does not matter.
RankPlan plan_of_set(const RankSet& ranks, const Plans& plans, RunShape shape);
/// The plans of one rank for each set of ranks that share micro-batches: of the first, which holds most.
std::vector<RankPlan> rank_plans_of(const Plans& plans, const RunShape& shape);
/// The plans of rank_plans_of (`found`), with ranks of smaller slices in sets of their own: all ranks of a
/// set hold and send the same.
std::vector<RankPlan> exact_plans_of(const Plans& plans, const RunShape& shape, std::vector<RankPlan> found);
/// What was asked for but does not happen between step `first` and the run's end, in words.
std::vector<std::string> what_never_comes(const CommandLine& line, const Workload& workload,
                                          const Facts& known, std::int64_t first);
/// Remarks for the reader of a plan.
std::vector<std::string> notes_of(const Prepared& run, const CommandLine& line);

}  // namespace sc::detail
