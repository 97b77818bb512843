// What is predicted of a run: worked out once, before it begins, and handed on. No torch.
#pragma once

#include <vector>

#include "common/config/command_line.h"
#include "common/records/report.h"
#include "common/strategy/plans.h"

namespace sc::detail {

struct RunPlans {
  Facts facts;                  // of this rank, as all but `world`
  std::vector<RankPlan> world;  // the first of each set of ranks that are alike
  RankPlan own;  // all that this rank holds, the copy included that it writes from while training goes on
  Contents contents;
};

/// For the rank of `shape`. asked: of its checkpoints.
RunPlans run_plans_of(const Plans& plans, const RunShape& shape, const CheckpointFlags& asked);

}  // namespace sc::detail
