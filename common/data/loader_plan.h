// The buffers of a Loader, by formula. No torch.
#pragma once

#include <cstdint>

#include "common/memory/plan.h"

namespace sc {

/// Adds "tokens", "targets" and "scale" to the plan, 16 M B T + 4 bytes on a CPU, under their names in the
/// ledger.
///   evaluated  micro-batches of an evaluation, summed over ranks
///   ranks      that share a step's micro-batches
void plan_loader(const BatchConfig& batch, std::int64_t evaluated, std::int64_t ranks, DeviceKind device,
                 MemoryPlan& plan);

}  // namespace sc
