// How one optimizer step's rows are shared out: global = micro x data-parallel ranks x accumulation.
// No torch.
#pragma once

#include <cstdint>
#include <string>

#include "common/base/mesh.h"
#include "common/config/resolve.h"
#include "common/config/workload.h"

namespace sc {

/// Rows of one step.
struct BatchPlan {
  std::int64_t global = 1, micro = 1;
  std::int64_t data_parallel = 1;  // D: ranks of the data axis
  std::int64_t accumulation = 1;   // micro-batches of a rank in one step
  std::string note;                // only of a plan: empty, or what a real run would refuse
};

/// Who shares the work. `plan_only` (--plan): nothing runs; an accumulation that is not whole is rounded up.
struct BatchRanks {
  Mesh mesh;
  bool plan_only = false;
  std::string ranks_flag = "-n";  // what changes the number of ranks
};

///   Errors  InputError(usage): the mesh does not divide the world, or accumulation is not whole.
///           The second prints the equation with its values and, as the fix, the nearest global batches,
///           micro batches and numbers of ranks that work.
BatchPlan plan_batch(const BatchConfig& batch, const BatchRanks& ranks, const Origins& origins);

}  // namespace sc
