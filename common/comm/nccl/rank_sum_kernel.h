// The kernels of PeerSums and of small sums. No torch. Internal to comm.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "common/base/types.h"

namespace sc {

/// One sum: to [n] = ((parts[0] + parts[1]) + parts[2]) + ..., each part [n]; `count` parts.
struct RankSum {
  static constexpr int kMost = 16;
  DType dtype;  // fp32, bf16 or fp16
  std::int64_t n;
  int count;
  const void* parts[kMost];
  void* to;
};
void add_in_rank_order(const RankSum& op, cudaStream_t stream);

/// Adds the rows of `parts` [count, n] in their order into `to` [n]; all fp64.
void add_rows_in_order(const double* parts, std::int64_t n, std::int64_t count, double* to,
                       cudaStream_t stream);

}  // namespace sc
