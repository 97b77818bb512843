// The learning rate of a step. No torch.
#pragma once

#include <cstdint>

#include "common/config/workload.h"

namespace sc {

/// Step 0 .. total_steps - 1. Linear from lr / warmup_steps up to lr over warmup_steps, then to lr *
/// min_lr_fraction at the last step: half a cosine, a line, or (constant) lr to the end.
double learning_rate(const OptimConfig& optim, std::int64_t step, std::int64_t total_steps);

}  // namespace sc
