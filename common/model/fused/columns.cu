// Sums over columns, alone or within GELU's backward. A block takes a strip of 256 columns and every n-th
// row; a warp one row at a time; a lane eight columns.
#include <algorithm>

#include "common/model/fused/columns.cuh"
#include "common/model/fused/gelu.cuh"
#include "common/model/fused/kernels.h"
#include "common/model/fused/vector.cuh"

namespace sc::fused {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;
constexpr int kStrip = kWarp * kVec;
constexpr int kBlocksEach = 4;  // blocks per multiprocessor: one wave, 64 registers per thread

std::int64_t strips(std::int64_t columns) { return ceil_div(columns, kStrip); }
// How many blocks share the rows of a strip, so that all blocks run as one wave.
std::int64_t splits(std::int64_t columns) {
  return std::max<std::int64_t>(1, multiprocessors() * kBlocksEach / strips(columns));
}

// Sums columns. Op::kUnroll is the number of rows that a thread has in flight, as many as registers allow.
// Op::load(row, column) returns an Op::Loaded; Op::finish(row, column, loaded, values) computes what is added
// to the columns' sums.
template <class Op>
__global__ void __launch_bounds__(kThreads, kBlocksEach)
    strip_kernel(Op op, std::int64_t rows, std::int64_t columns, float* partial) {
  __shared__ float shared[kWarps][kStrip];
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kStrip + lane * kVec;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.y) * kWarps;
  float sums[kVec] = {};
  if (column < columns) {
    for (std::int64_t first = blockIdx.y * kWarps + warp; first < rows; first += step * Op::kUnroll) {
      constexpr int kUnroll = Op::kUnroll;
      typename Op::Loaded loaded[kUnroll];
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        if (first + u * step < rows) loaded[u] = op.load(first + u * step, column);
      }
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        if (first + u * step >= rows) continue;
        float values[kVec];
        op.finish(first + u * step, column, loaded[u], values);
#pragma unroll
        for (int i = 0; i < kVec; ++i) sums[i] += values[i];
      }
    }
  }
#pragma unroll
  for (int i = 0; i < kVec; ++i) shared[warp][lane * kVec + i] = sums[i];
  __syncthreads();
  const std::int64_t c = static_cast<std::int64_t>(blockIdx.x) * kStrip + threadIdx.x;
  if (c >= columns) return;
  float sum = shared[0][threadIdx.x];
#pragma unroll
  for (int w = 1; w < kWarps; ++w) sum += shared[w][threadIdx.x];
  partial[blockIdx.y * columns + c] = sum;
}
static_assert(kStrip == kThreads);

template <class Op>
void run_strips(const Op& op, std::int64_t rows, std::int64_t columns, float* sums, void* scratch,
                cudaStream_t stream) {
  auto* partial = static_cast<float*>(scratch);
  const std::int64_t parts = std::min(splits(columns), std::max<std::int64_t>(1, ceil_div(rows, kWarps)));
  const dim3 grid(static_cast<unsigned>(strips(columns)), static_cast<unsigned>(parts));
  strip_kernel<<<grid, kThreads, 0, stream>>>(op, rows, columns, partial);
  SC_CHECK(cudaGetLastError());
  finish_columns(
      {.partial = partial, .parts = parts, .stride = columns, .width = columns, .sums = 1, .out = {sums}},
      stream);
}

template <class T>
struct SumOp {
  const T* m;
  std::int64_t columns;
  using Loaded = Packed<T>;
  static constexpr int kUnroll = sizeof(T) == 2 ? 4 : 2;
  __device__ Loaded load(std::int64_t row, std::int64_t column) const {
    Loaded loaded;
    loaded.load(m + row * columns + column);
    return loaded;
  }
  __device__ void finish(std::int64_t, std::int64_t, const Loaded& loaded, float (&values)[kVec]) const {
    loaded.unpack(values);
  }
};

template <class T>
struct GeluBackwardOp {
  T* grad;
  const T* pre;
  std::int64_t columns;
  struct Loaded {
    Packed<T> grad, pre;
  };
  static constexpr int kUnroll = sizeof(T) == 2 ? 2 : 1;
  __device__ Loaded load(std::int64_t row, std::int64_t column) const {
    Loaded loaded;
    loaded.grad.load(grad + row * columns + column);
    loaded.pre.load(pre + row * columns + column);
    return loaded;
  }
  __device__ void finish(std::int64_t row, std::int64_t column, const Loaded& loaded,
                         float (&values)[kVec]) const {
    float x[kVec];
    loaded.grad.unpack(values);
    loaded.pre.unpack(x);
#pragma unroll
    for (int i = 0; i < kVec; ++i) values[i] *= gelu_derivative<T>(x[i]);
    store(grad + row * columns + column, values);
  }
};

// A block that adds partial sums has 32 columns and 8 threads per column, each adding every eighth part.
constexpr int kFinishColumns = 32;
constexpr int kFinishParts = kThreads / kFinishColumns;

__global__ void __launch_bounds__(kThreads) finish_kernel(FinishColumns op) {
  __shared__ float shared[kFinishParts][kFinishColumns];
  const int lane = threadIdx.x % kFinishColumns, part = threadIdx.x / kFinishColumns;
  float* out = op.out[blockIdx.y];
  if (out == nullptr) return;
  const std::int64_t c = static_cast<std::int64_t>(blockIdx.x) * kFinishColumns + lane;
  float sum = 0;
  if (c < op.width) {
    const float* column = op.partial + blockIdx.y * op.width + c;
#pragma unroll 8
    for (std::int64_t p = part; p < op.parts; p += kFinishParts) sum += column[p * op.stride];
  }
  shared[part][lane] = sum;
  __syncthreads();
  if (part != 0 || c >= op.width) return;
#pragma unroll
  for (int p = 1; p < kFinishParts; ++p) sum += shared[p][lane];
  out[c] = sum;
}

template <class T>
__global__ void store_sums_kernel(StoreSums op) {
  const StoreSums::Part& part = op.part[blockIdx.y];
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= part.n) return;
  T* grad = static_cast<T*>(part.grad);
  grad[i] = from_float<T>(op.accumulate ? to_float(grad[i]) + part.sums[i] : part.sums[i]);
}

template <class T>
__global__ void __launch_bounds__(kThreads) gelu_kernel(const T* pre, T* y, std::int64_t n) {
  const std::int64_t begin = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kVec;
  if (begin >= n) return;
  float x[kVec];
  load(pre + begin, x);
#pragma unroll
  for (int i = 0; i < kVec; ++i) x[i] = gelu_value<T>(x[i]);
  store(y + begin, x);
}

}  // namespace

void finish_columns(const FinishColumns& op, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(ceil_div(op.width, kFinishColumns)), static_cast<unsigned>(op.sums));
  finish_kernel<<<grid, kThreads, 0, stream>>>(op);
  SC_CHECK(cudaGetLastError());
}

std::int64_t column_scratch_bytes(std::int64_t columns) {
  return static_cast<std::int64_t>(sizeof(float)) * columns * splits(columns);
}

void column_sums(const ColumnSums& op, void* scratch, cudaStream_t stream) {
  with_type(op.dtype, [&]<class T>(T*) {
    run_strips(SumOp<T>{static_cast<const T*>(op.m), op.columns}, op.rows, op.columns, op.sums, scratch,
               stream);
  });
}

void gelu_backward(const GeluBackward& op, void* scratch, cudaStream_t stream) {
  with_type(op.dtype, [&]<class T>(T*) {
    run_strips(GeluBackwardOp<T>{static_cast<T*>(op.grad), static_cast<const T*>(op.pre), op.columns},
               op.rows, op.columns, op.sums, scratch, stream);
  });
}

void store_sums(const StoreSums& op, cudaStream_t stream) {
  std::int64_t longest = 1;
  for (int i = 0; i < op.count; ++i) longest = std::max(longest, op.part[i].n);
  const dim3 grid(static_cast<unsigned>(ceil_div(longest, kThreads)), static_cast<unsigned>(op.count));
  with_type(op.dtype, [&]<class T>(T*) { store_sums_kernel<T><<<grid, kThreads, 0, stream>>>(op); });
  SC_CHECK(cudaGetLastError());
}

void gelu(DType dtype, std::int64_t n, const void* pre, void* y, cudaStream_t stream) {
  with_type(dtype, [&]<class T>(T*) {
    gelu_kernel<<<static_cast<unsigned>(ceil_div(n, kThreads * kVec)), kThreads, 0, stream>>>(
        static_cast<const T*>(pre), static_cast<T*>(y), n);
  });
  SC_CHECK(cudaGetLastError());
}

}  // namespace sc::fused
