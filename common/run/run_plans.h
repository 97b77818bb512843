// The predictions for a run: computed once, before it begins. No torch.
#pragma once

#include <vector>

#include "common/config/command_line.h"
#include "common/records/report.h"
#include "common/strategy/plans.h"

namespace sc::detail {

struct RunPlans {
  Facts facts;                  // of this rank, like everything but `world`
  std::vector<RankPlan> world;  // one for each set of equal ranks: the first one's
  // All that this rank holds, with the copy from which checkpoints are written while training goes on.
  RankPlan own;
  Contents contents;
};

/// The plans for the rank of `shape`; `asked` says whether checkpoints need a copy of the state.
RunPlans run_plans_of(const Plans& plans, const RunShape& shape, const CheckpointFlags& asked);

}  // namespace sc::detail
