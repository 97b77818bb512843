#include "lessons/05_offload/exercise/which_update.h"

#include <algorithm>

namespace sc {

void offloaded_step(OffloadedRun& run, const UpdateRule& rule, std::int64_t step) {
  const auto delayed = [&](std::int64_t s) { return rule.delayed && s >= rule.warm_steps; };
  const std::int64_t needed = std::max<std::int64_t>(0, step - (delayed(step) ? 1 : 0));
  for (int unit = 0, fetched = 0; unit < run.num_units(); ++unit) {
    for (; fetched < run.num_units() && (fetched <= unit || run.updated(fetched, needed)); ++fetched) {
      run.wait(fetched, needed);
      run.fetch(fetched);
    }
    run.compute(unit);
  }
  run.backward();
  // Fetched once per step so far; a delayed next step needs the old parameters once more.
  run.post(step + 1 + (delayed(step + 1) ? 1 : 0));
}

}  // namespace sc
