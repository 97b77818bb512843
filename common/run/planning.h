// A run as it is known before it has ranks: looked at, and planned. No torch.
#pragma once

#include <string>
#include <vector>

#include "common/config/command_line.h"
#include "common/records/report.h"
#include "common/strategy/plans.h"

namespace sc::detail {

/// What was asked for, and that it fits together.
struct Prepared {
  ResolvedConfig config;
  BatchPlan batch;
  RunShape shape;  // of its plan
  Facts known;
};

/// computes_on: what a run would compute on, decided.
///   Errors  InputError (exit 64) for what does not fit together, or what the strategy cannot do.
Prepared prepare(const Program& program, const Plans& plans, const CommandLine& line, ResolvedConfig config,
                 std::int64_t world, DeviceChoice computes_on);

/// What the first of these ranks holds and sends, whatever the rank of `shape` is.
RankPlan plan_of_set(const RankSet& ranks, const Plans& plans, RunShape shape);
/// Of ranks that share micro-batches what the first holds and sends: no other one has more.
std::vector<RankPlan> rank_plans_of(const Plans& plans, const RunShape& shape);
/// Those whose slices are smaller stand by themselves: the ranks of each set hold and send the same.
///   found  rank_plans_of the same
std::vector<RankPlan> exact_plans_of(const Plans& plans, const RunShape& shape, std::vector<RankPlan> found);
/// What was asked for and does not come between the step `first` and the run's end, in words.
std::vector<std::string> what_never_comes(const CommandLine& line, const Workload& workload,
                                          const Facts& known, std::int64_t first);
/// What a reader of a plan should know.
std::vector<std::string> notes_of(const Prepared& run, const CommandLine& line);

}  // namespace sc::detail
