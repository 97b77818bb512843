// Which update a forward waits for. No torch.
#pragma once

#include <algorithm>
#include <cstdint>

namespace sc {

/// Steps count from 0 over all of a run's parts; updates are those of this part, one a step.
struct UpdateClock {
  bool delayed = false;         // after the warm steps
  std::int64_t warm_steps = 0;  // which are exact
  std::int64_t first_step = 0;  // of this part of the run
  std::int64_t taken_over = 0;  // 1: the first update here is the one that a checkpoint had put off

  /// Whether a forward of `step` leaves the update before it to the host.
  [[nodiscard]] bool puts_off(std::int64_t step) const { return delayed && step >= warm_steps; }
  /// Updates that have been posted when `step` begins.
  [[nodiscard]] std::int64_t posted(std::int64_t step) const { return step - first_step + taken_over; }
  /// The last of them; 0 where there is none.
  [[nodiscard]] std::int64_t last_posted(std::int64_t step) const {
    return std::max<std::int64_t>(0, posted(step) - 1);
  }
  // [anchor: one-update-behind]
  /// How many updates the parameters have seen that forward of `step` computes with. Delayed: all but the
  /// last one, for which the host has a whole step.
  [[nodiscard]] std::int64_t due(std::int64_t step) const {
    return std::max<std::int64_t>(0, posted(step) - (puts_off(step) ? 1 : 0));
  }
  /// Whether an update has been posted that forward of `step` leaves to the host.
  [[nodiscard]] bool pending(std::int64_t step) const { return puts_off(step) && posted(step) > 0; }
  /// The step whose forward, exact, waits for that update; its copies and transfers count for it.
  [[nodiscard]] std::int64_t step_after(std::int64_t update) const {
    return first_step + update + 1 - taken_over;
  }
  /// How many steps here have sent a piece's parameters when the update of `step`'s gradient may overwrite
  /// them: those up to the last one that computes with them.
  [[nodiscard]] std::int64_t after_sends(std::int64_t step) const {
    return step - first_step + 1 + (puts_off(step + 1) ? 1 : 0);
  }
};

}  // namespace sc
