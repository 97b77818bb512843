// LayerNorm backward with the gradient that bypasses the norm, and all the column sums that its rows give.
//   A block holds several groups of threads, a group takes kRows rows at a time, a thread eight columns, so
//   that the column sums stay in registers. Rows arrive in shared memory a few turns ahead (each thread
//   copies what it reads itself), and are read there twice: before and after the sum over the row.
#include <algorithm>

#include "common/model/fused/columns.cuh"
#include "common/model/fused/kernels.h"
#include "common/model/fused/vector.cuh"

namespace sc::fused {
namespace {

constexpr int kMaxThreads = 768;  // leaves a thread 80 registers
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

// Rows of a group's turn: with two, one barrier serves both, and one row's loads hide the other's sums. Turns
// under way: as many as leave room in 227 KiB of shared memory.
template <class T>
constexpr int kRows = sizeof(T) == 2 ? 2 : 1;
constexpr int kStages = 3;

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

// Both sums of R rows over the threads of a group. `parity` alternates, so that one barrier a turn is enough.
template <int R>
__device__ void group_sum(float2 (&v)[R], float2 (*shared)[kMaxWarpsOfGroup][R], int parity, int group,
                          int group_threads) {
#pragma unroll
  for (int r = 0; r < R; ++r) v[r] = {warp_sum(v[r].x), warp_sum(v[r].y)};
  if (group_threads == kWarp) return;
  const int warp = static_cast<int>(threadIdx.x) % group_threads / kWarp;
#pragma unroll
  for (int r = 0; r < R; ++r) {
    if (threadIdx.x % kWarp == 0) shared[parity][warp][r] = v[r];
  }
  asm volatile("bar.sync %0, %1;" ::"r"(group + 1), "r"(group_threads) : "memory");
#pragma unroll
  for (int r = 0; r < R; ++r) v[r] = shared[parity][0][r];
  for (int w = 1; w < group_threads / kWarp; ++w) {
#pragma unroll
    for (int r = 0; r < R; ++r) {
      v[r].x += shared[parity][w][r].x;
      v[r].y += shared[parity][w][r].y;
    }
  }
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
  constexpr int R = kRows<T>, kAhead = kStages - 1;
  extern __shared__ uint4 shared[];
  __shared__ float2 sums[kMaxThreads / kWarp][2][kMaxWarpsOfGroup][R];
  // Row r of stage s is slots[(s * R + r) * blockDim.x].
  auto* slots = reinterpret_cast<Slot<T>*>(shared) + threadIdx.x;
  const int group = static_cast<int>(threadIdx.x) / a.group_threads;
  const int begin = static_cast<int>(threadIdx.x) % a.group_threads * kVec;
  const bool active = begin < a.width;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * a.groups * R;
  const float inverse_width = 1.0F / static_cast<float>(a.width);
  std::int64_t first = (static_cast<std::int64_t>(blockIdx.x) * a.groups + group) * R;

  const auto fetch_turn = [&](std::int64_t row, int stage) {
#pragma unroll
    for (int r = 0; r < R; ++r) {
      if (active && row + r < a.rows)
        fetch<T, kResidual>(a, row + r, begin, slots[(stage * R + r) * blockDim.x]);
    }
    commit_copies();
  };
  float next_mean[R] = {}, next_rstd[R] = {};
  const auto fetch_statistics = [&](std::int64_t row) {
#pragma unroll
    for (int r = 0; r < R; ++r) {
      if (row + r < a.rows) next_mean[r] = a.mean[row + r], next_rstd[r] = a.rstd[row + r];
    }
  };

  Columns<T, kResidual, kMoreSums> columns;
  Packed<T> weight_packed{};
  if (active) weight_packed.load(a.weight + begin);
  for (int s = 0; s < kAhead; ++s) fetch_turn(first + s * stride, s);
  fetch_statistics(first);

  int stage = 0;
  for (int turn = 0; first < a.rows; ++turn, first += stride) {
    fetch_turn(first + kAhead * stride, stage == 0 ? kAhead : stage - 1);
    wait_copies<kAhead>();
    float mean[R], rstd[R];
#pragma unroll
    for (int r = 0; r < R; ++r) mean[r] = next_mean[r], rstd[r] = next_rstd[r];
    fetch_statistics(first + stride);

    float2 sum[R] = {};
#pragma unroll
    for (int r = 0; r < R; ++r) {
      if (!active || first + r >= a.rows) continue;
      const Slot<T>& slot = slots[(stage * R + r) * blockDim.x];
      float g[kVec], x[kVec], weight[kVec];
      slot[0].unpack(g);
      slot[1].unpack(x);
      weight_packed.unpack(weight);
#pragma unroll
      for (int i = 0; i < kVec; ++i) {
        const float normal = (x[i] - mean[r]) * rstd[r];
        columns.of_weight[i] += g[i] * normal;
        columns.of_bias[i] += g[i];
        sum[r].x += g[i] * weight[i];
        sum[r].y += g[i] * weight[i] * normal;
      }
    }
    group_sum(sum, sums[group], turn % 2, group, a.group_threads);
#pragma unroll
    for (int r = 0; r < R; ++r) {
      if (!active || first + r >= a.rows) continue;
      const Slot<T>& slot = slots[(stage * R + r) * blockDim.x];
      const float mean_g = sum[r].x * inverse_width, mean_gn = sum[r].y * inverse_width;
      float g[kVec], x[kVec], weight[kVec], residual[kVec] = {};
      slot[0].unpack(g);
      slot[1].unpack(x);
      weight_packed.unpack(weight);
      if constexpr (kResidual) slot[2].unpack(residual);
#pragma unroll
      for (int i = 0; i < kVec; ++i) {
        const float normal = (x[i] - mean[r]) * rstd[r];
        g[i] = (g[i] * weight[i] - mean_g - normal * mean_gn) * rstd[r] + residual[i];
        if constexpr (kMoreSums) {
          columns.of_residual[i] += residual[i];
          columns.of_grad_x[i] += g[i];
        }
      }
      store(a.grad_x + (first + r) * a.width + begin, g);
    }
    stage = stage == kAhead ? 0 : stage + 1;
  }
  columns.reduce(a, reinterpret_cast<float*>(shared), group, begin);
}

template <class T, bool kResidual, bool kMoreSums>
void launch(const Arguments<T>& a, int blocks, cudaStream_t stream) {
  const int threads = a.groups * a.group_threads;
  const std::int64_t rows_bytes = std::int64_t{kStages} * kRows<T> * threads * sizeof(Slot<T>);
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
      static_cast<int>(std::clamp<std::int64_t>(ceil_div(op.rows, groups * kRows<T>), 1, multiprocessors()));
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
