// LayerNorm forward, of a row or of a sum that is added on the way. One warp per row, which stays in
// registers between the two sums; the next row is loaded meanwhile.
#include <algorithm>

#include "common/model/fused/kernels.h"
#include "common/model/fused/vector.cuh"

namespace sc::fused {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;
constexpr float kEps = 1e-5F;

template <class T>
struct Arguments {
  const T *x, *weight, *bias;
  T* y;
  float *mean, *rstd;
  std::int64_t rows;
  int width;
  const T *added_bias, *sum;  // with kAdds the norm is that of (x + added_bias) + sum
  T* added;
};

// One row in a warp's registers: a lane holds elements (k * 32 + lane) * 8 .. + 8 for k < K.
template <class T, int K>
struct RowOfWarp {
  Packed<T> part[K];
  __device__ void load(const T* row, int width) {
#pragma unroll
    for (int k = 0; k < K; ++k) {
      const int begin = (k * kWarp + static_cast<int>(threadIdx.x % kWarp)) * kVec;
      if (begin < width) part[k].load(row + begin);
    }
  }
};

template <class T, int K, bool kAdds>
__global__ void __launch_bounds__(kThreads) layer_norm_kernel(Arguments<T> a) {
  const int lane = threadIdx.x % kWarp;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kWarps;
  std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp;
  const float inverse_width = 1.0F / static_cast<float>(a.width);
  RowOfWarp<T, K> next, next_sum;
  const auto load_row = [&](std::int64_t of) {
    next.load(a.x + of * a.width, a.width);
    if constexpr (kAdds) next_sum.load(a.sum + of * a.width, a.width);
  };
  if (row < a.rows) load_row(row);
  for (; row < a.rows; row += stride) {
    float x[K][kVec];
    float sum = 0;
#pragma unroll
    for (int k = 0; k < K; ++k) {
      next.part[k].unpack(x[k]);
      const int begin = (k * kWarp + lane) * kVec;
      if (begin >= a.width) continue;
      if constexpr (kAdds) {
        float bias[kVec], summand[kVec];
        load(a.added_bias + begin, bias);
        next_sum.part[k].unpack(summand);
#pragma unroll
        for (int i = 0; i < kVec; ++i) x[k][i] = (x[k][i] + bias[i]) + summand[i];
        Packed<T> rounded;
        rounded.pack(x[k]);
        rounded.store(a.added + row * a.width + begin);
        rounded.unpack(x[k]);
      }
#pragma unroll
      for (int i = 0; i < kVec; ++i) sum += x[k][i];
    }
    if (row + stride < a.rows) load_row(row + stride);
    if constexpr (kAdds) {
      if (a.y == nullptr) continue;
    }
    const float mean = warp_sum(sum) * inverse_width;
    float squares = 0;
#pragma unroll
    for (int k = 0; k < K; ++k) {
      if ((k * kWarp + lane) * kVec >= a.width) continue;
#pragma unroll
      for (int i = 0; i < kVec; ++i) {
        x[k][i] -= mean;
        squares += x[k][i] * x[k][i];
      }
    }
    const float rstd = rsqrtf(warp_sum(squares) * inverse_width + kEps);
#pragma unroll
    for (int k = 0; k < K; ++k) {
      const int begin = (k * kWarp + lane) * kVec;
      if (begin >= a.width) continue;
      float weight[kVec], bias[kVec];
      load(a.weight + begin, weight);
      load(a.bias + begin, bias);
#pragma unroll
      for (int i = 0; i < kVec; ++i) x[k][i] = x[k][i] * rstd * weight[i] + bias[i];
      store(a.y + row * a.width + begin, x[k]);
    }
    if (lane == 0) {
      a.mean[row] = mean;
      a.rstd[row] = rstd;
    }
  }
}

// Launches as many blocks as fit at once, each warp with the same number of rows if possible.
template <class T, int K, bool kAdds>
void launch(const Arguments<T>& a, cudaStream_t stream) {
  static const int resident = [] {
    int blocks = 0;
    SC_CHECK(
        cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, layer_norm_kernel<T, K, kAdds>, kThreads, 0));
    return blocks * multiprocessors();
  }();
  const std::int64_t turns = ceil_div(a.rows, static_cast<std::int64_t>(resident) * kWarps);
  const auto blocks = static_cast<unsigned>(ceil_div(a.rows, turns * kWarps));
  layer_norm_kernel<T, K, kAdds><<<blocks, kThreads, 0, stream>>>(a);
  SC_CHECK(cudaGetLastError());
}

template <class T, bool kAdds, int K = 1>
void launch_for_width(const Arguments<T>& a, cudaStream_t stream) {
  if constexpr (K * kWarp * kVec < kMaxWidth) {
    if (a.width > K * kWarp * kVec) return launch_for_width<T, kAdds, K + 1>(a, stream);
  }
  launch<T, K, kAdds>(a, stream);
}

template <class T>
Arguments<T> arguments_of(const LayerNorm& op) {
  return {static_cast<const T*>(op.x),
          static_cast<const T*>(op.weight),
          static_cast<const T*>(op.bias),
          static_cast<T*>(op.y),
          op.mean,
          op.rstd,
          op.rows,
          static_cast<int>(op.width),
          nullptr,
          nullptr,
          nullptr};
}

}  // namespace

void layer_norm(const LayerNorm& op, cudaStream_t stream) {
  if (op.rows == 0) return;
  with_type(op.dtype, [&]<class T>(T*) { launch_for_width<T, false>(arguments_of<T>(op), stream); });
}

void add_norm(const AddNorm& op, cudaStream_t stream) {
  if (op.norm.rows == 0) return;
  with_type(op.norm.dtype, [&]<class T>(T*) {
    Arguments<T> a = arguments_of<T>(op.norm);
    a.added_bias = static_cast<const T*>(op.bias);
    a.sum = static_cast<const T*>(op.sum);
    a.added = static_cast<T*>(op.added);
    launch_for_width<T, true>(a, stream);
  });
}

}  // namespace sc::fused
