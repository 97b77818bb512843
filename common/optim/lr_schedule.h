// The learning rate of a step. No torch.
#pragma once

#include <cstdint>

#include "common/config/workload.h"

namespace sc {

/// The learning rate of step 0 .. total_steps - 1. It rises linearly from lr / warmup_steps to lr over
/// warmup_steps, then falls to lr * min_lr_fraction at the last step: as half a cosine, as a line, or
/// (constant) not at all.
double learning_rate(const OptimConfig& optim, std::int64_t step, std::int64_t total_steps);

}  // namespace sc
