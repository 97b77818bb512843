// How ranks share the rows of a step: global = micro x data-parallel ranks x accumulation. No torch.
#pragma once

#include <cstdint>
#include <string>

#include "common/base/mesh.h"
#include "common/config/resolve.h"
#include "common/config/workload.h"

namespace sc {

struct BatchPlan {
  std::int64_t global = 1, micro = 1;
  std::int64_t data_parallel = 1;  // D: the size of the data axis
  std::int64_t accumulation = 1;   // micro-batches of one rank in a step
  std::string note;                // --plan only: what a real run would refuse; otherwise empty
};

/// The ranks that share a step's rows. With `plan_only` (--plan) nothing is trained, and accumulation is
/// rounded up to a whole number.
struct BatchRanks {
  Mesh mesh;
  bool plan_only = false;
  std::string ranks_flag = "-n";  // the flag that changes the number of ranks
};

/// Works out how many micro-batches each rank gets in a step.
///   Errors  InputError(usage): the mesh does not divide the world, or accumulation is not whole. The second
///           prints the equation with its values and, as the fix, the nearest global batches, micro batches
///           and numbers of ranks that work.
BatchPlan plan_batch(const BatchConfig& batch, const BatchRanks& ranks, const Origins& origins);

}  // namespace sc
