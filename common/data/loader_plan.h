// What a Loader holds, by formula. No torch.
#pragma once

#include <cstdint>

#include "common/memory/plan.h"

namespace sc {

/// Bytes of "tokens", "targets" and "scale", 16 M B T + 4 on a CPU, by the names that the ledger will see.
///   evaluated  micro-batches of an evaluation, over all ranks
///   ranks      that share a step's micro-batches
void plan_loader(const BatchConfig& batch, std::int64_t evaluated, std::int64_t ranks, DeviceKind device,
                 MemoryPlan& plan);

}  // namespace sc
