// Which update a forward waits for. No torch.
#pragma once

#include <algorithm>
#include <cstdint>

namespace sc {

/// Relates steps, which count from 0 over all parts of a run, to the updates of this part, one per step.
struct UpdateClock {
  bool delayed = false;         // updates after the warm steps are delayed
  std::int64_t warm_steps = 0;  // the first steps, whose updates are exact
  std::int64_t first_step = 0;  // of this part of the run
  std::int64_t taken_over = 0;  // 1: the first update here is one that the checkpoint left pending

  /// Whether forward of `step` does not wait for the update before it.
  [[nodiscard]] bool puts_off(std::int64_t step) const { return delayed && step >= warm_steps; }
  [[nodiscard]] std::int64_t posted(std::int64_t step) const { return step - first_step + taken_over; }
  /// The number of the last update posted before `step`; 0 if there is none.
  [[nodiscard]] std::int64_t last_posted(std::int64_t step) const {
    return std::max<std::int64_t>(0, posted(step) - 1);
  }
  // [anchor: one-update-behind]
  // How many updates the parameters of `step`'s forward have had. With delayed updates: all but the last one,
  // for which the host has a whole step.
  [[nodiscard]] std::int64_t due(std::int64_t step) const {
    return std::max<std::int64_t>(0, posted(step) - (puts_off(step) ? 1 : 0));
  }
  /// Whether a posted update exists for which forward of `step` does not wait.
  [[nodiscard]] bool pending(std::int64_t step) const { return puts_off(step) && posted(step) > 0; }
  /// The step whose forward waits for an update if exact, and for which the update's transfers count.
  [[nodiscard]] std::int64_t step_after(std::int64_t update) const {
    return first_step + update + 1 - taken_over;
  }
  /// How many times a piece's parameters must have been sent before the update from `step`'s gradient may
  /// overwrite them: once for each step that computes with them.
  [[nodiscard]] std::int64_t after_sends(std::int64_t step) const {
    return step - first_step + 1 + (puts_off(step + 1) ? 1 : 0);
  }
};

}  // namespace sc
