// The kernels of PeerSums and of small sums. No torch. Internal to comm.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "common/base/types.h"

namespace sc {

/// to [n] = parts[0] + ... + parts[count - 1], each [n], added in that order.
struct RankSum {
  static constexpr int kMost = 16;
  DType dtype;  // fp32, bf16 or fp16
  std::int64_t n;
  int count;
  const void* parts[kMost];
  void* to;
};
void add_in_rank_order(const RankSum& op, cudaStream_t stream);

/// to [n] = the sum over the rows of parts [count, n], fp64, added in row order.
void add_rows_in_order(const double* parts, std::int64_t n, std::int64_t count, double* to,
                       cudaStream_t stream);

}  // namespace sc
