// Two softmaxes over parts of the keys become one. Memory-bound.
#include <algorithm>

#include "common/model/fused/kernels.h"
#include "common/model/fused/vector.cuh"

namespace sc::fused {
namespace {

constexpr int kThreads = 256;

// A warp takes the `head` elements of one token and head at a time.
template <class T, class Others, class Sum>
__global__ void __launch_bounds__(kThreads) merge_kernel(MergeAttention op) {
  const std::int64_t warps = gridDim.x * (kThreads / kWarp), all = op.batch * op.tokens * op.heads;
  const int lane = static_cast<int>(threadIdx.x) % kWarp, head = static_cast<int>(op.head);
  for (std::int64_t i = blockIdx.x * (kThreads / kWarp) + threadIdx.x / kWarp; i < all; i += warps) {
    const std::int64_t row = i / op.heads / op.tokens, token = i / op.heads % op.tokens,
                       of_head = row * op.heads + i % op.heads;
    const float here = op.lse[of_head * op.tokens + token];
    float& lse_of_sum = op.lse_of_sum[of_head * op.row + token];
    const float before = lse_of_sum, both = fmaxf(here, before) + log1pf(expf(-fabsf(here - before)));
    const float of_here = expf(here - both), of_before = expf(before - both);
    const std::int64_t at = ((row * op.row + token) * op.heads + i % op.heads) * head;
    const T* out = static_cast<const T*>(op.out) + i * head;
    const Others* others = static_cast<const Others*>(op.others) + at;
    Sum* sum = static_cast<Sum*>(op.sum) + at;
    for (int d = lane; d < head; d += kWarp)
      sum[d] = from_float<Sum>(of_before * to_float(others[d]) + of_here * to_float(out[d]));
    __syncwarp();  // all lanes have read it
    if (lane == 0) lse_of_sum = both;
  }
}

}  // namespace

void merge_attention(const MergeAttention& op, cudaStream_t stream) {
  constexpr std::int64_t kWarps = kThreads / kWarp, kBlocksEach = 8;
  const std::int64_t blocks = (op.batch * op.tokens * op.heads + kWarps - 1) / kWarps;
  const auto grid =
      static_cast<unsigned>(std::clamp<std::int64_t>(blocks, 1, kBlocksEach * multiprocessors()));
  with_type(op.dtype, [&]<class T>(T*) {
    using Kernel = void (*)(MergeAttention);
    constexpr Kernel kKernels[2][2] = {{merge_kernel<T, T, T>, merge_kernel<T, T, float>},
                                       {merge_kernel<T, float, T>, merge_kernel<T, float, float>}};
    kKernels[op.others_dtype == DType::f32][op.sum_dtype == DType::f32]<<<grid, kThreads, 0, stream>>>(op);
  });
  SC_CHECK(cudaGetLastError());
}

}  // namespace sc::fused
