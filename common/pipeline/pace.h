// Marks what takes a stage's time as spans of the timeline, and can slow it down: every action computes, then
// sleeps until its cost has passed. So a laptop shows what a schedule does with stages that do not share its
// cores.
#pragma once

#include <chrono>
#include <map>

#include "common/pipeline/share.h"
#include "common/watch/timeline.h"

namespace sc {

class Pace {
 public:
  using Clock = std::chrono::steady_clock;
  /// Slows actions down to share.pace, pipedream's costs in seconds; without it they take their own time.
  Pace(Timeline& timeline, const Share& share) : timeline_(timeline), share_(share) {}

  /// The time of a computing action, from construction to destruction; waiting inside it counts.
  class Turn {
   public:
    Turn(Pace& pace, const pipedream::Action& action)
        : mark_(pace.timeline_.mark(pipedream::to_text(action), computed_in(pace.share_, action))),
          pace_(pace),
          action_(action) {}
    ~Turn() {
      if (pace_.share_.pace) pace_.sleep_out(action_, began_);
    }

   private:
    Timeline::Mark mark_;  // ends after the sleep
    Pace& pace_;
    const pipedream::Action& action_;
    Clock::time_point began_ = Clock::now();
  };
  [[nodiscard]] Turn turn(const pipedream::Action& action) { return {*this, action}; }

  /// Must be called after every step.
  ///   Errors  InputError (exit 64), after the second step, if a cost is below twice what the action
  ///           computes, so that the machine could not keep it.
  void check(std::int64_t step);

 private:
  void sleep_out(const pipedream::Action& action, Clock::time_point began);

  Timeline& timeline_;
  const Share& share_;
  std::map<pipedream::Kind, double> least_,
      // The seconds that an action of this kind computed, and may take.
      cost_;
};

}  // namespace sc
