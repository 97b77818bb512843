// The second half of every sum over columns: adds partial rows.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace sc::fused {

/// out[s][c] = the sum over p < parts of partial[p * stride + s * width + c] for s < sums, in an order that
/// depends on `parts` alone. Null entries of `out` are skipped.
struct FinishColumns {
  const float* partial;
  std::int64_t parts, stride, width;
  int sums;
  float* out[4];
};
void finish_columns(const FinishColumns& op, cudaStream_t stream);

}  // namespace sc::fused
