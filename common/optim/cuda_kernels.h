// The optimizer's GPU kernels as functions of raw pointers: no torch. All are enqueued on `stream` and return
// at once. `scratch` and `counters` come from common/memory/stream_scratch.h.
//   Errors  DeviceError if a launch fails; InputError for a dtype.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>

#include "common/base/types.h"
#include "common/optim/norm_rule.h"

namespace sc::fused {

struct AdamW {
  std::int64_t n;
  DType grad_dtype, param16_dtype;  // fp32, bf16 or fp16; bf16 or fp16
  const void* grad;
  float *param, *m, *v;
  void* param16;  // may be null
  const float *lr, *clip;
  const std::int64_t* step;
};
/// Launches the kernel of adamw_step() on `stream`; weights in the ranges `decay` are decayed.
void adamw(const AdamWHyper& hyper, std::span<const Range> decay, const AdamW& op, cudaStream_t stream);

/// Adds the sum of all parts' squares to `squares`, in fp64; blocks of a fixed size, added in order.
struct SumsOfSquares {
  static constexpr std::size_t kMost = 64;
  static constexpr std::int64_t kBlock = 16384;  // elements of a block, whose sum depends on nothing else
  struct Part {
    const void* x;
    std::int64_t n, first_block;
  };
  DType dtype;
  double* squares;
  std::int64_t blocks = 0;
  int count = 0;
  Part part[kMost] = {};

  void add(const void* x, std::int64_t n) {
    if (n == 0) return;
    part[count++] = {x, n, blocks};
    blocks += ceil_div(n, kBlock);
  }
  [[nodiscard]] std::int64_t scratch_bytes() const {
    return static_cast<std::int64_t>(sizeof(double)) * blocks;
  }
};
void add_sums_of_squares(const SumsOfSquares& op, void* scratch, unsigned* counters, cudaStream_t stream);

/// The kernels of finish_sums and global_norm_and_clip, for sums [4].
void finish_sums(double* sums, cudaStream_t stream);
void norm_and_clip(const NormAndClip& rule, cudaStream_t stream);

}  // namespace sc::fused
