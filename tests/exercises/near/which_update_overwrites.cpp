// Forward waits for the right update, but a delayed one may overwrite what the next forward has not fetched.
#include <algorithm>

#include "lessons/05_offload/exercise/which_update.h"

namespace sc {

void offloaded_step(OffloadedRun& run, const UpdateRule& rule, std::int64_t step) {
  const bool delayed = rule.delayed && step >= rule.warm_steps;
  const std::int64_t needed = std::max<std::int64_t>(0, step - (delayed ? 1 : 0));
  for (int unit = 0, fetched = 0; unit < run.num_units(); ++unit) {
    for (; fetched < run.num_units() && (fetched <= unit || run.updated(fetched, needed)); ++fetched) {
      run.wait(fetched, needed);
      run.fetch(fetched);
    }
    run.compute(unit);
  }
  run.backward();
  run.post(step + 1);
}

}  // namespace sc
