// The buffers of a Loader, by formula. No torch.
#pragma once

#include <cstdint>

#include "common/memory/plan.h"

namespace sc {

/// Adds the Loader's "tokens", "targets" and "scale" to the plan, 16 M B T + 4 bytes on a CPU.
///   evaluated  micro-batches of an evaluation, summed over ranks
///   ranks      how many share a step's micro-batches
void plan_loader(const BatchConfig& batch, std::int64_t evaluated, std::int64_t ranks, DeviceKind device,
                 MemoryPlan& plan);

}  // namespace sc
