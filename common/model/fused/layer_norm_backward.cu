// LayerNorm backward with the gradient that bypasses the norm, and all the column sums that its rows give.
//   A block holds several groups of threads, a group takes one row at a time, a thread eight columns, so that
//   the column sums stay in registers. Rows arrive in shared memory a few turns ahead (each thread copies
//   what it reads itself).
#include <algorithm>

#include "common/model/fused/columns.cuh"
#include "common/model/fused/kernels.h"
#include "common/model/fused/vector.cuh"

namespace sc::fused {
namespace {

constexpr int kMaxThreads = 672;  // leaves a thread 96 registers
constexpr int kSums = 4;          // of weight, bias, residual, grad_x
constexpr int kMaxWarpsOfGroup = static_cast<int>(kMaxWidth / kVec / kWarp);

template <class T>
struct Arguments {
  const T *grad_y, *x;
  const float *mean, *rstd;
  const T *weight, *residual;
  T* grad_x;
  float* partial;  // [blocks, kSums, width]
  std::int64_t rows;
  int width, group_threads, groups;
};

// Rows under way a thread: as many as leave room in 227 KiB of shared memory.
template <class T>
constexpr int kStages = sizeof(T) == 2 ? 5 : 3;

// What one thread of a row reads: grad_y, x, residual.
template <class T>
using Slot = Packed<T>[3];

template <class T, bool kResidual>
__device__ void fetch(const Arguments<T>& a, std::int64_t row, int begin, Slot<T>& slot) {
  const T* from[] = {a.grad_y, a.x, a.residual};
#pragma unroll
  for (int i = 0; i < (kResidual ? 3 : 2); ++i) {
    const auto* source = reinterpret_cast<const uint4*>(from[i] + row * a.width + begin);
#pragma unroll
    for (int w = 0; w < Packed<T>::kWords; ++w) copy_async(&slot[i].word[w], source + w);
  }
}

// Both sums over the threads of a group. `parity` alternates, so that one barrier a row is enough.
__device__ float2 group_sum(float2 v, float2 (*shared)[kMaxWarpsOfGroup], int parity, int group,
                            int group_threads) {
  v.x = warp_sum(v.x);
  v.y = warp_sum(v.y);
  if (group_threads == kWarp) return v;
  const int warp = static_cast<int>(threadIdx.x) % group_threads / kWarp;
  if (threadIdx.x % kWarp == 0) shared[parity][warp] = v;
  asm volatile("bar.sync %0, %1;" ::"r"(group + 1), "r"(group_threads) : "memory");
  v = shared[parity][0];
  for (int w = 1; w < group_threads / kWarp; ++w) {
    v.x += shared[parity][w].x;
    v.y += shared[parity][w].y;
  }
  return v;
}

template <class T, bool kResidual, bool kMoreSums>
struct Columns {
  float of_weight[kVec] = {}, of_bias[kVec] = {}, of_residual[kVec] = {}, of_grad_x[kVec] = {};

  // The group's sums over blocks' groups, in order, into this block's part of `partial`.
  __device__ void reduce(const Arguments<T>& a, float* shared, int group, int begin) {
    float* mine = shared + static_cast<std::int64_t>(group) * kSums * a.width + begin;
    const float(*all[])[kVec] = {&of_weight, &of_bias, &of_residual, &of_grad_x};
    constexpr int kUsed = kMoreSums ? kSums : 2;
    __syncthreads();  // shared memory held the rows until now
    if (begin < a.width) {
#pragma unroll
      for (int s = 0; s < kUsed; ++s) {
#pragma unroll
        for (int i = 0; i < kVec; ++i) mine[s * a.width + i] = (*all[s])[i];
      }
    }
    __syncthreads();
    for (int c = static_cast<int>(threadIdx.x); c < kUsed * a.width; c += static_cast<int>(blockDim.x)) {
      float sum = shared[c];
      for (int g = 1; g < a.groups; ++g) sum += shared[static_cast<std::int64_t>(g) * kSums * a.width + c];
      a.partial[static_cast<std::int64_t>(blockIdx.x) * kSums * a.width + c] = sum;
    }
  }
};

template <class T, bool kResidual, bool kMoreSums>
__global__ void __launch_bounds__(kMaxThreads, 1) layer_norm_backward_kernel(Arguments<T> a) {
  extern __shared__ uint4 shared[];
  __shared__ float2 sums[kMaxThreads / kWarp][2][kMaxWarpsOfGroup];
  auto* slots = reinterpret_cast<Slot<T>*>(shared) + threadIdx.x;  // stage s is slots[s * blockDim.x]
  constexpr int kAhead = kStages<T> - 1;
  const int group = static_cast<int>(threadIdx.x) / a.group_threads;
  const int begin = static_cast<int>(threadIdx.x) % a.group_threads * kVec;
  const bool active = begin < a.width;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * a.groups;
  const float inverse_width = 1.0F / static_cast<float>(a.width);
  std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * a.groups + group;

  Columns<T, kResidual, kMoreSums> columns;
  Packed<T> weight_packed{};
  if (active) weight_packed.load(a.weight + begin);
  for (int s = 0; s < kAhead; ++s) {
    if (active && row + s * stride < a.rows)
      fetch<T, kResidual>(a, row + s * stride, begin, slots[s * blockDim.x]);
    commit_copies();
  }
  float next_mean = 0, next_rstd = 0;
  if (row < a.rows) next_mean = a.mean[row], next_rstd = a.rstd[row];

  int stage = 0;
  for (int turn = 0; row < a.rows; ++turn, row += stride) {
    const std::int64_t ahead = row + kAhead * stride;
    const int fill = stage == 0 ? kAhead : stage - 1;
    if (active && ahead < a.rows) fetch<T, kResidual>(a, ahead, begin, slots[fill * blockDim.x]);
    commit_copies();
    wait_copies<kAhead>();
    const float mean = next_mean, rstd = next_rstd;
    if (row + stride < a.rows) next_mean = a.mean[row + stride], next_rstd = a.rstd[row + stride];

    float g[kVec] = {}, normal[kVec] = {}, weight[kVec];
    weight_packed.unpack(weight);
    float2 sum{0, 0};
    const Slot<T>& slot = slots[stage * blockDim.x];
    if (active) {
      slot[0].unpack(g);
      slot[1].unpack(normal);
#pragma unroll
      for (int i = 0; i < kVec; ++i) {
        normal[i] = (normal[i] - mean) * rstd;
        columns.of_weight[i] += g[i] * normal[i];
        columns.of_bias[i] += g[i];
        g[i] *= weight[i];
        sum.x += g[i];
        sum.y += g[i] * normal[i];
      }
    }
    sum = group_sum(sum, sums[group], turn % 2, group, a.group_threads);
    if (active) {
      const float mean_g = sum.x * inverse_width, mean_gn = sum.y * inverse_width;
      float residual[kVec] = {};
      if constexpr (kResidual) slot[2].unpack(residual);
#pragma unroll
      for (int i = 0; i < kVec; ++i) {
        g[i] = (g[i] - mean_g - normal[i] * mean_gn) * rstd + residual[i];
        if constexpr (kMoreSums) {
          columns.of_residual[i] += residual[i];
          columns.of_grad_x[i] += g[i];
        }
      }
      store(a.grad_x + row * a.width + begin, g);
    }
    stage = stage == kAhead ? 0 : stage + 1;
  }
  columns.reduce(a, reinterpret_cast<float*>(shared), group, begin);
}

template <class T, bool kResidual, bool kMoreSums>
void launch(const Arguments<T>& a, int blocks, cudaStream_t stream) {
  const int threads = a.groups * a.group_threads;
  const std::int64_t rows_bytes = static_cast<std::int64_t>(kStages<T>) * threads * sizeof(Slot<T>);
  const std::int64_t sums_bytes = static_cast<std::int64_t>(a.groups) * kSums * a.width * sizeof(float);
  const auto bytes = static_cast<std::size_t>(std::max(rows_bytes, sums_bytes));
  const auto kernel = layer_norm_backward_kernel<T, kResidual, kMoreSums>;
  SC_CHECK(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)));
  kernel<<<blocks, threads, bytes, stream>>>(a);
  SC_CHECK(cudaGetLastError());
}

template <class T>
void run(const LayerNormBackward& op, void* scratch, cudaStream_t stream) {
  const int width = static_cast<int>(op.width);
  const int group_threads = static_cast<int>(round_up(op.width / kVec, kWarp));
  // Named barriers 1..15 separate the groups of more than one warp.
  const int groups = std::min(kMaxThreads / group_threads, group_threads == kWarp ? kMaxThreads / kWarp : 15);
  const auto blocks =
      static_cast<int>(std::clamp<std::int64_t>(ceil_div(op.rows, groups), 1, multiprocessors()));
  auto* partial = static_cast<float*>(scratch);
  const Arguments<T> a{static_cast<const T*>(op.grad_y),
                       static_cast<const T*>(op.x),
                       op.mean,
                       op.rstd,
                       static_cast<const T*>(op.weight),
                       static_cast<const T*>(op.residual),
                       static_cast<T*>(op.grad_x),
                       partial,
                       op.rows,
                       width,
                       group_threads,
                       groups};
  const bool more = op.of_residual != nullptr || op.of_grad_x != nullptr;
  if (op.residual == nullptr) {
    more ? launch<T, false, true>(a, blocks, stream) : launch<T, false, false>(a, blocks, stream);
  } else {
    more ? launch<T, true, true>(a, blocks, stream) : launch<T, true, false>(a, blocks, stream);
  }
  finish_columns({.partial = partial,
                  .parts = blocks,
                  .stride = kSums * op.width,
                  .width = op.width,
                  .sums = more ? kSums : 2,
                  .out = {op.of_weight, op.of_bias, op.of_residual, op.of_grad_x}},
                 stream);
}

}  // namespace

std::int64_t layer_norm_backward_scratch_bytes(std::int64_t width) {
  return static_cast<std::int64_t>(sizeof(float)) * kSums * width * multiprocessors();
}

void layer_norm_backward(const LayerNormBackward& op, void* scratch, cudaStream_t stream) {
  with_type(op.dtype, [&]<class T>(T*) { run<T>(op, scratch, stream); });
}

}  // namespace sc::fused
