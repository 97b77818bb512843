// A strategy by its plans alone: what it would hold and send, without its mechanism.
#pragma once

#include <functional>
#include <string>

#include "common/memory/plan.h"
#include "common/strategy/strategy.h"
#include "common/watch/comm_op.h"

namespace sc {

/// With the strategy's options bound, the default ones unless others are given.
struct StrategyPlans {
  std::string folder;  // the lesson's
  std::string name;    // for messages
  std::function<MemoryPlan(const RunShape&)> memory_plan;
  std::function<CommPlan(const RunShape&)> comm_plan;
  std::function<Division(WorldSize)> division = [](WorldSize) { return Division{}; };
};

template <Strategy S>
StrategyPlans plans_of(const std::string& folder, const std::string& name,
                       const typename S::Options& options = {}) {
  return {folder, name, [options](const RunShape& shape) { return S::memory_plan(shape, options); },
          [options](const RunShape& shape) { return S::comm_plan(shape, options); },
          [options](WorldSize world) { return division_of<S>(options, world); }};
}

}  // namespace sc
