// Time that is given: every action computes, then sleeps until its cost has passed. So a laptop shows what a
// schedule does with stages that do not share its cores.
#pragma once

#include <chrono>
#include <map>

#include "share.h"

namespace sc {

class Pace {
 public:
  using Clock = std::chrono::steady_clock;
  /// share.pace: pipedream's costs, in seconds; without it actions take what they take.
  explicit Pace(const Share& share) : share_(share) {}

  template <class Work>
  void run(const pipedream::Action& action, Work&& work) {
    const Clock::time_point began = Clock::now();
    work();
    if (share_.pace) sleep_out(action, began);
  }
  /// After every step.
  ///   Errors  InputError (exit 64), after the second step: a cost is below twice what the action computes, so
  ///           that the machine could not keep it.
  void check(std::int64_t step);

 private:
  void sleep_out(const pipedream::Action& action, Clock::time_point began);

  const Share& share_;
  std::map<pipedream::Kind, double> least_,
      cost_;  // seconds that an action of this kind computed, and may take
};

}  // namespace sc
