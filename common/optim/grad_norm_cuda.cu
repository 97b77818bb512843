// Sums of squares in fp64 in two stages of one launch, and the few numbers that follow from them.
#include <cmath>

#include "common/model/fused/vector.cuh"
#include "common/optim/cuda_kernels.h"

namespace sc::fused {
namespace {

constexpr int kThreads = 256;
constexpr int kTurns = static_cast<int>(SumsOfSquares::kBlock / (kThreads * kVec));

// The sum of x over a block's threads, in all threads of the first warp.
__device__ double block_sum(double x) {
  __shared__ double shared[kThreads / kWarp];
  x = warp_sum(x);
  __syncthreads();
  if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = x;
  __syncthreads();
  return warp_sum(threadIdx.x % kWarp < kThreads / kWarp ? shared[threadIdx.x % kWarp] : 0.0);
}

__device__ void add_square(double& sum, float x) {
  const double value = x;
  sum += value * value;
}

// Sums the squares of blocks. If x starts at a multiple of 16 bytes, a thread reads eight elements at once;
// the order of the sum is the same otherwise.
template <class T>
__global__ void __launch_bounds__(kThreads)
    squares_kernel(const __grid_constant__ SumsOfSquares op, double* partial, unsigned* counter) {
  __shared__ bool last;
  int p = 0;
  while (p + 1 < op.count && op.part[p + 1].first_block <= blockIdx.x) ++p;
  const T* x = static_cast<const T*>(op.part[p].x);
  const std::int64_t n = op.part[p].n, block = (blockIdx.x - op.part[p].first_block) * SumsOfSquares::kBlock;
  const bool aligned = reinterpret_cast<std::uintptr_t>(x) % sizeof(uint4) == 0;
  double sum = 0;
#pragma unroll
  for (int turn = 0; turn < kTurns; ++turn) {
    const std::int64_t begin = block + (turn * kThreads + static_cast<std::int64_t>(threadIdx.x)) * kVec;
    if (aligned && begin + kVec <= n) {
      float value[kVec];
      load(x + begin, value);
#pragma unroll
      for (int i = 0; i < kVec; ++i) add_square(sum, value[i]);
    } else {
      for (int i = 0; i < kVec && begin + i < n; ++i) add_square(sum, to_float(x[begin + i]));
    }
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) {
    partial[blockIdx.x] = sum;
    last = last_block(counter);
  }
  __syncthreads();
  if (!last) return;
  double total = 0;
  for (unsigned b = threadIdx.x; b < gridDim.x; b += kThreads) total += __ldcg(partial + b);
  total = block_sum(total);
  if (threadIdx.x == 0) *op.squares += total;
}

__global__ void finish_sums_kernel(double* s) {
  s[kNonFinite] = isfinite(s[kLossSum]) && isfinite(s[kSquares]) ? 0.0 : 1.0;
}

__global__ void norm_and_clip_kernel(NormAndClip rule) { rule.run(); }

}  // namespace

void add_sums_of_squares(const SumsOfSquares& op, void* scratch, unsigned* counters, cudaStream_t stream) {
  if (op.blocks == 0) return;
  with_type(op.dtype, [&]<class T>(T*) {
    squares_kernel<T><<<static_cast<unsigned>(op.blocks), kThreads, 0, stream>>>(
        op, static_cast<double*>(scratch), counters);
  });
  SC_CHECK(cudaGetLastError());
}

void finish_sums(double* sums, cudaStream_t stream) {
  finish_sums_kernel<<<1, 1, 0, stream>>>(sums);
  SC_CHECK(cudaGetLastError());
}

void norm_and_clip(const NormAndClip& rule, cudaStream_t stream) {
  norm_and_clip_kernel<<<1, 1, 0, stream>>>(rule);
  SC_CHECK(cudaGetLastError());
}

}  // namespace sc::fused
