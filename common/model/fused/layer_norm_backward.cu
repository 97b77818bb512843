// LayerNorm backward with the gradient that bypasses the norm, and all column sums over its rows.
//   A block holds several groups of threads; a group takes two rows at a time, a thread eight columns of
//   both, so that column sums stay in registers while the next two rows are loaded. Few threads with many
//   registers each, because more threads would spill.
#include <algorithm>

#include "common/model/fused/columns.cuh"
#include "common/model/fused/kernels.h"
#include "common/model/fused/vector.cuh"

namespace sc::fused {
namespace {

constexpr int kMaxThreads = 384;  // leaves each thread 168 registers
constexpr int kSums = 4;          // weight, bias, residual, grad_x
constexpr int kRows = 2;          // rows that a group takes in one turn
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

// The elements of a group's two rows that one thread reads; rows past the last are 0.
template <class T, bool kResidual>
struct Turn {
  Packed<T> grad_y[kRows] = {}, x[kRows] = {}, residual[kResidual ? kRows : 1] = {};
  float mean[kRows] = {}, rstd[kRows] = {};

  __device__ void load(const Arguments<T>& a, std::int64_t row, std::int64_t at, bool active) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (row + r >= a.rows) {
        grad_y[r] = x[r] = {};
        mean[r] = rstd[r] = 0;
        if constexpr (kResidual) residual[r] = {};
        continue;
      }
      mean[r] = a.mean[row + r];
      rstd[r] = a.rstd[row + r];
      if (!active) continue;
      grad_y[r].load(a.grad_y + at + r * a.width);
      x[r].load(a.x + at + r * a.width);
      if constexpr (kResidual) residual[r].load(a.residual + at + r * a.width);
    }
  }
};

// For each row of a group, the sums of g and of g * normal over the group's threads.
struct RowSums {
  float g[kRows] = {}, gn[kRows] = {};
};

// Adds four numbers over a group. Two exchanges leave each eighth of a warp with one of the four; three more
// add it up. `parity` alternates, so that one barrier per turn is enough.
__device__ RowSums group_sum(const RowSums& v, float4 (*shared)[kMaxWarpsOfGroup], int parity, int group,
                             int group_threads) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp,
            warp = static_cast<int>(threadIdx.x) % group_threads / kWarp;
  const bool upper = lane >= kWarp / 2, odd = (lane & kWarp / 4) != 0;
  const float g = (upper ? v.g[1] : v.g[0]) + __shfl_xor_sync(~0U, upper ? v.g[0] : v.g[1], kWarp / 2);
  const float gn = (upper ? v.gn[1] : v.gn[0]) + __shfl_xor_sync(~0U, upper ? v.gn[0] : v.gn[1], kWarp / 2);
  float mine = (odd ? gn : g) + __shfl_xor_sync(~0U, odd ? g : gn, kWarp / 4);
#pragma unroll
  for (int offset = kWarp / 8; offset > 0; offset /= 2) mine += __shfl_xor_sync(~0U, mine, offset);
  if (lane % (kWarp / 4) == 0) reinterpret_cast<float*>(&shared[parity][warp])[lane / (kWarp / 4)] = mine;
  if (group_threads == kWarp) {
    __syncwarp();
  } else {
    asm volatile("bar.sync %0, %1;" ::"r"(group + 1), "r"(group_threads) : "memory");
  }
  float4 sum = shared[parity][0];
  for (int w = 1; w < group_threads / kWarp; ++w) {
    const float4 other = shared[parity][w];
    sum.x += other.x, sum.y += other.y, sum.z += other.z, sum.w += other.w;
  }
  return {{sum.x, sum.z}, {sum.y, sum.w}};
}

template <class T, bool kMoreSums>
struct Columns {
  float of_weight[kVec] = {}, of_bias[kVec] = {}, of_residual[kVec] = {}, of_grad_x[kVec] = {};

  // Adds the sums of the block's groups, in order, into this block's part of `partial`.
  __device__ void reduce(const Arguments<T>& a, float* shared, int group, int begin) {
    float* mine = shared + static_cast<std::int64_t>(group) * kSums * a.width + begin;
    const float(*all[])[kVec] = {&of_weight, &of_bias, &of_residual, &of_grad_x};
    constexpr int kUsed = kMoreSums ? kSums : 2;
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

// grad_x = rstd (g - mean(g) - normal mean(g normal)) + residual with g = grad_y weight.
template <class T, bool kResidual, bool kMoreSums>
__global__ void __launch_bounds__(kMaxThreads, 1) layer_norm_backward_kernel(Arguments<T> a) {
  extern __shared__ float shared[];
  __shared__ float4 sums[kMaxThreads / kWarp][2][kMaxWarpsOfGroup];
  const int group = static_cast<int>(threadIdx.x) / a.group_threads;
  const int begin = static_cast<int>(threadIdx.x) % a.group_threads * kVec;
  const bool active = begin < a.width;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * a.groups * kRows;
  // All groups take equally many turns, so that all meet at equally many barriers; racecheck requires it.
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * a.groups * kRows;
  const float inverse_width = 1.0F / static_cast<float>(a.width);
  std::int64_t row = first + group * kRows;
  std::int64_t at = row * a.width + begin;

  Columns<T, kMoreSums> columns;
  Packed<T> weight_packed{};
  if (active) weight_packed.load(a.weight + begin);
  Turn<T, kResidual> next;
  next.load(a, row, at, active);
  int parity = 0;
  for (std::int64_t turn = first; turn < a.rows; turn += stride, row += stride, at += stride * a.width) {
    const Turn<T, kResidual> now = next;
    next.load(a, row + stride, at + stride * a.width, active);
    float g[kRows][kVec], normal[kRows][kVec], weight[kVec];
    weight_packed.unpack(weight);
    RowSums sum;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      now.grad_y[r].unpack(g[r]);
      now.x[r].unpack(normal[r]);
#pragma unroll
      for (int i = 0; i < kVec; ++i) {
        normal[r][i] = active ? (normal[r][i] - now.mean[r]) * now.rstd[r] : 0.0F;
        columns.of_weight[i] += g[r][i] * normal[r][i];
        columns.of_bias[i] += g[r][i];
        g[r][i] *= weight[i];
        sum.g[r] += g[r][i];
        sum.gn[r] += g[r][i] * normal[r][i];
      }
    }
    sum = group_sum(sum, sums[group], parity, group, a.group_threads);
    parity ^= 1;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (!active || row + r >= a.rows) continue;
      const float mean_g = sum.g[r] * inverse_width * now.rstd[r],
                  mean_gn = sum.gn[r] * inverse_width * now.rstd[r];
      float residual[kVec] = {};
      if constexpr (kResidual) now.residual[r].unpack(residual);
#pragma unroll
      for (int i = 0; i < kVec; ++i) {
        g[r][i] = g[r][i] * now.rstd[r] + ((residual[i] - mean_g) - normal[r][i] * mean_gn);
        if constexpr (kMoreSums) {
          columns.of_residual[i] += residual[i];
          columns.of_grad_x[i] += g[r][i];
        }
      }
      store(a.grad_x + at + r * a.width, g[r]);
    }
  }
  columns.reduce(a, shared, group, begin);
}

template <class T, bool kResidual, bool kMoreSums>
void launch(const Arguments<T>& a, int blocks, cudaStream_t stream) {
  const int threads = a.groups * a.group_threads;
  const std::size_t bytes = sizeof(float) * kSums * static_cast<std::size_t>(a.groups) * a.width;
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
  // At most 12 groups fit, since each needs a named barrier and there are 15.
  const int groups = kMaxThreads / group_threads;
  const auto blocks =
      static_cast<int>(std::clamp<std::int64_t>(ceil_div(op.rows, groups * kRows), 1, multiprocessors()));
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
