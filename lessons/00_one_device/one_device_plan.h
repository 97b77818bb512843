// What lesson 00 holds, known before a run. No torch.
#pragma once

#include "common/memory/plan.h"

namespace sc {

/// The vectors and buffers of OneDevice.
///   params  elements of all parameters
///   grads   elements of the buffer of gradients: as many, and what a derived class puts behind them
void plan_one_device(const RunShape& shape, const Formula& params, const Formula& grads, MemoryPlan& plan);

}  // namespace sc
