// Right bits, but forward of unit 0 waits for the last unit's update.
#include <algorithm>

#include "lessons/05_offload/exercise/which_update.h"

namespace sc {

void offloaded_step(OffloadedRun& run, const UpdateRule& rule, std::int64_t step) {
  const auto delayed = [&](std::int64_t s) { return rule.delayed && s >= rule.warm_steps; };
  const std::int64_t needed = std::max<std::int64_t>(0, step - (delayed(step) ? 1 : 0));
  for (int unit = 0; unit < run.num_units(); ++unit) {
    run.wait(unit, needed);
    run.fetch(unit);
  }
  for (int unit = 0; unit < run.num_units(); ++unit) run.compute(unit);
  run.backward();
  run.post(step + 1 + (delayed(step + 1) ? 1 : 0));
}

}  // namespace sc
