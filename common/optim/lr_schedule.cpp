#include "common/optim/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace sc {

double learning_rate(const OptimConfig& optim, std::int64_t step, std::int64_t total_steps) {
  if (step < optim.warmup_steps)
    return optim.lr * static_cast<double>(step + 1) / static_cast<double>(optim.warmup_steps);
  if (optim.schedule == LrSchedule::constant) return optim.lr;
  // The number of steps over which the rate falls: the last step already has the final rate.
  const std::int64_t falling = total_steps - 1 - optim.warmup_steps;
  const double done =
      falling <= 0
          ? 1.0
          : std::min(1.0, static_cast<double>(step - optim.warmup_steps) / static_cast<double>(falling));
  const double left =
      optim.schedule == LrSchedule::linear ? 1.0 - done : 0.5 * (1.0 + std::cos(std::numbers::pi * done));
  return optim.lr * (optim.min_lr_fraction + (1.0 - optim.min_lr_fraction) * left);
}

}  // namespace sc
