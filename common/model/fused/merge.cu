// Two softmaxes over parts of the keys become one. Memory-bound.
#include <algorithm>

#include "common/model/fused/kernels.h"
#include "common/model/fused/vector.cuh"

namespace sc::fused {
namespace {

constexpr int kThreads = 256;

// A warp takes the `head` elements of one token and head at a time.
template <class T>
__global__ void __launch_bounds__(kThreads) merge_kernel(MergeAttention op) {
  const std::int64_t warps = gridDim.x * (kThreads / kWarp), all = op.batch * op.tokens * op.heads;
  const int lane = static_cast<int>(threadIdx.x) % kWarp, head = static_cast<int>(op.head);
  for (std::int64_t i = blockIdx.x * (kThreads / kWarp) + threadIdx.x / kWarp; i < all; i += warps) {
    const std::int64_t token = i / op.heads, row = token / op.tokens;
    const std::int64_t at = (row * op.heads + i % op.heads) * op.tokens + token % op.tokens;
    const float here = op.lse[at], before = op.overwrite ? -INFINITY : op.lse_of_sum[at];
    const float both = fmaxf(here, before) + log1pf(expf(-fabsf(here - before)));
    const float of_here = op.overwrite ? 1.0F : expf(here - both), of_before = expf(before - both);
    const T* out = static_cast<const T*>(op.out) + i * head;
    float* sum = op.sum + i * head;
    for (int d = lane; d < head; d += kWarp)
      sum[d] = op.overwrite ? to_float(out[d]) : of_before * sum[d] + of_here * to_float(out[d]);
    __syncwarp();  // all lanes have read it
    if (lane == 0) op.lse_of_sum[at] = op.overwrite ? here : both;
  }
}

}  // namespace

void merge_attention(const MergeAttention& op, cudaStream_t stream) {
  constexpr std::int64_t kWarps = kThreads / kWarp, kBlocksEach = 8;
  const std::int64_t blocks = (op.batch * op.tokens * op.heads + kWarps - 1) / kWarps;
  const auto grid =
      static_cast<unsigned>(std::clamp<std::int64_t>(blocks, 1, kBlocksEach * multiprocessors()));
  with_type(op.dtype, [&]<class T>(T*) { merge_kernel<T><<<grid, kThreads, 0, stream>>>(op); });
  SC_CHECK(cudaGetLastError());
}

}  // namespace sc::fused
