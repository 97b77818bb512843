// The model and the rows that exercises train: small, of odd shapes, with a different number of targets in
// every micro-batch.
#pragma once

#include <cstdint>

#include "common/config/workload.h"
#include "common/data/batch.h"

namespace sc::exercise {

/// A workload of 4 micro-batches per step, so that 1, 2 and 4 ranks share them; no clipping.
Workload tiny_workload();
/// Micro-batch `j` of `step`, of `micro` rows, each with a number of targets of its own; every fifth
/// micro-batch has none at all.
Batch tiny_batch(const Workload& workload, std::int64_t step, std::int64_t j);

}  // namespace sc::exercise
