#include "common/watch/comm_counts.h"

#include <limits>
#include <stdexcept>
#include <string>

namespace sc {

CommCounts::CommCounts(std::int64_t keep_steps) : keep_steps_(keep_steps) {
  phases_.fill({{}, std::numeric_limits<std::int64_t>::min()});
}

void CommCounts::add(Phase phase, std::int64_t step, const Operation& op) {
  Steps& steps = in(phase);
  steps.plans[step].add(op);
  while (static_cast<std::int64_t>(steps.plans.size()) > keep_steps_) {
    steps.forgotten_before = steps.plans.begin()->first + 1;
    steps.plans.erase(steps.plans.begin());
  }
}

void CommCounts::take_back(Phase phase, std::int64_t step, const Operation& op) {
  const auto plan = in(phase).plans.find(step);
  if (plan == in(phase).plans.end()) return;
  auto& count = plan->second.count;
  const auto same = count.find(op);
  if (same != count.end() && --same->second == 0) count.erase(same);
}

CommPlan CommCounts::of(Phase phase, std::int64_t step) const {
  const Steps& steps = phases_[static_cast<std::size_t>(phase)];
  if (step < steps.forgotten_before) {
    throw std::out_of_range("the operations of step " + std::to_string(step) + " are not kept any more");
  }
  const auto found = steps.plans.find(step);
  return found == steps.plans.end() ? CommPlan{} : found->second;
}

}  // namespace sc
