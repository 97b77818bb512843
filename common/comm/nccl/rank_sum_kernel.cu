// Kernels that add the numbers of several ranks. Memory-bound; every number is read once.
#include "common/base/cuda_check.h"
#include "common/base/cuda_numbers.cuh"
#include "common/comm/nccl/rank_sum_kernel.h"

namespace sc {
namespace {

constexpr int kThreads = 256;

/// As many elements as a thread reads with one 16-byte load, if the addresses are aligned.
template <class T>
struct alignas(16) Pack {
  static constexpr int kSize = 16 / sizeof(T);
  T of[kSize];
};

template <class T>
__global__ void __launch_bounds__(kThreads) packs_kernel(RankSum op, std::int64_t packs) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= packs) return;
  float sum[Pack<T>::kSize];
  for (int r = 0; r < op.count; ++r) {
    const Pack<T> part = static_cast<const Pack<T>*>(op.parts[r])[i];
#pragma unroll
    for (int k = 0; k < Pack<T>::kSize; ++k)
      sum[k] = r == 0 ? to_float(part.of[k]) : sum[k] + to_float(part.of[k]);
  }
  Pack<T> out;
#pragma unroll
  for (int k = 0; k < Pack<T>::kSize; ++k) out.of[k] = from_float<T>(sum[k]);
  static_cast<Pack<T>*>(op.to)[i] = out;
}

template <class T>
__global__ void __launch_bounds__(kThreads) elements_kernel(RankSum op, std::int64_t first) {
  const std::int64_t i = first + static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= op.n) return;
  float sum = to_float(static_cast<const T*>(op.parts[0])[i]);
  for (int r = 1; r < op.count; ++r) sum += to_float(static_cast<const T*>(op.parts[r])[i]);
  static_cast<T*>(op.to)[i] = from_float<T>(sum);
}

__global__ void rows_kernel(const double* parts, std::int64_t n, std::int64_t count, double* to) {
  for (std::int64_t i = threadIdx.x; i < n; i += blockDim.x) {
    double sum = parts[i];
    for (std::int64_t r = 1; r < count; ++r) sum += parts[r * n + i];
    to[i] = sum;
  }
}

unsigned blocks_of(std::int64_t threads) { return static_cast<unsigned>(ceil_div(threads, kThreads)); }

template <class T>
void run(const RankSum& op, cudaStream_t stream) {
  bool aligned = reinterpret_cast<std::uintptr_t>(op.to) % sizeof(Pack<T>) == 0;
  for (int r = 0; r < op.count; ++r)
    aligned = aligned && reinterpret_cast<std::uintptr_t>(op.parts[r]) % sizeof(Pack<T>) == 0;
  const std::int64_t packs = aligned ? op.n / Pack<T>::kSize : 0, rest = packs * Pack<T>::kSize;
  if (packs > 0) packs_kernel<T><<<blocks_of(packs), kThreads, 0, stream>>>(op, packs);
  if (rest < op.n) elements_kernel<T><<<blocks_of(op.n - rest), kThreads, 0, stream>>>(op, rest);
  SC_CHECK(cudaGetLastError());
}

}  // namespace

void add_in_rank_order(const RankSum& op, cudaStream_t stream) {
  with_type(op.dtype, [&]<class T>(T*) { run<T>(op, stream); });
}

void add_rows_in_order(const double* parts, std::int64_t n, std::int64_t count, double* to,
                       cudaStream_t stream) {
  rows_kernel<<<1, 32, 0, stream>>>(parts, n, count, to);
  SC_CHECK(cudaGetLastError());
}

}  // namespace sc
