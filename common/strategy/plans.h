// A strategy by its plans alone: what it would hold and send, without its mechanism.
#pragma once

#include <functional>
#include <string>

#include "common/memory/plan.h"
#include "common/watch/comm_op.h"

namespace sc {

/// With the strategy's default options.
struct StrategyPlans {
  std::string folder;  // the lesson's
  std::string name;    // for messages
  std::function<MemoryPlan(const RunShape&)> memory_plan;
  std::function<CommPlan(const RunShape&)> comm_plan;
};

}  // namespace sc
