// Softmax cross entropy and its gradient, in place. Memory-bound: each logit is read once and written once.
//   A block takes one row at a time. Its logits stay in registers between the softmax's sum and the gradient;
//   meanwhile the next two rows arrive in shared memory, where each thread copies what it reads itself. If
//   two rows do not fit there (fp32, or more than 56,000 columns of 16 bits), rows are read from memory
//   twice.
#include <algorithm>
#include <cmath>

#include "common/model/fused/kernels.h"
#include "common/model/fused/softmax.cuh"

namespace sc::fused {
namespace {

constexpr int kMaxThreads = 512;  // leaves each thread 128 registers,
constexpr int kMaxPieces = 14;    // of which 14 x 4 hold logits
constexpr int kThreadsTwice = 512;

template <class T>
struct Arguments {
  T* logits;
  const std::int64_t* targets;
  const float* scale;
  LossTotals totals;
  std::int64_t rows;
  int vocab, padded;
};

__device__ inline __nv_bfloat162 higher(__nv_bfloat162 a, __nv_bfloat162 b) { return __hmax2_nan(a, b); }
__device__ inline __half2 higher(__half2 a, __half2 b) { return __hmax2_nan(a, b); }
__device__ inline float highest_of_pair(__nv_bfloat162 v) { return fmaxf(__low2float(v), __high2float(v)); }
__device__ inline float highest_of_pair(__half2 v) { return fmaxf(__low2float(v), __high2float(v)); }
template <class T>
using Pair = std::conditional_t<std::is_same_v<T, __half>, __half2, __nv_bfloat162>;

// One row of logits in a block's registers: thread t holds columns (k * threads + t) * 8 .. + 8 for k < K.
template <class T, int K>
struct RowOfBlock {
  Packed<T> piece[K];
  int padded, vocab;

  // Calls f(piece, its first column) for each piece of 8 columns that this thread holds.
  template <class F>
  __device__ void each(const F& f) {
#pragma unroll
    for (int k = 0; k < K; ++k) {
      const int begin = (k * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x)) * kVec;
      if (begin < padded) f(piece[k], begin);
    }
  }
  // Reads a row from shared memory; padding becomes -infinity. Returns the maximum, or NaN if there is one.
  __device__ float take(const uint4* ahead) {
    Pair<T> highest{from_float<T>(-INFINITY), from_float<T>(-INFINITY)};
    each([&](Packed<T>& p, int begin) {
      p.word[0] = ahead[begin / kVec];
      T* element = reinterpret_cast<T*>(p.word);
      if (begin + kVec > vocab) {
#pragma unroll
        for (int i = 0; i < kVec; ++i) {
          if (begin + i >= vocab) element[i] = from_float<T>(-INFINITY);
        }
      }
      const auto* pair = reinterpret_cast<const Pair<T>*>(p.word);
#pragma unroll
      for (int i = 0; i < kVec / 2; ++i) highest = higher(highest, pair[i]);
    });
    return highest_of_pair(highest);
  }
  __device__ SoftmaxSum softmax_sum(float highest) {
    SoftmaxSum s{highest, 0};
    const float base = highest == -INFINITY ? 0.0F : highest;  // there is nothing but padding
    each([&](const Packed<T>& p, int) {
      float x[kVec];
      p.unpack(x);
#pragma unroll
      for (int i = 0; i < kVec; ++i) s.sum += exp_of(x[i] - base);
    });
    return s;
  }
};

// Loss and gradient of rows that fit into shared memory. The gradient's factor goes into the exponent: scale
// / sum = 2^log2(scale / sum).
template <class T, int K, bool kGradient>
__global__ void __launch_bounds__(kMaxThreads) cross_entropy_kernel(Arguments<T> a) {
  extern __shared__ uint4 rows_ahead[];  // [2][padded / kVec]
  __shared__ SoftmaxSum warps[2][kWarp];
  __shared__ float target_logit[2];
  const int pieces = a.padded / kVec;
  const auto fetch = [&](std::int64_t row, int buffer) {
    if (row < a.rows) {
      const auto* from = reinterpret_cast<const uint4*>(a.logits + row * a.padded);
#pragma unroll
      for (int k = 0; k < K; ++k) {
        const int piece = k * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x);
        if (piece < pieces) copy_async(&rows_ahead[buffer * pieces + piece], from + piece);
      }
    }
    commit_copies();
  };
  const float scale = kGradient ? *a.scale : 0.0F;
  Loss mine{};
  std::int64_t row = blockIdx.x;
  fetch(row, 0);
  fetch(row + gridDim.x, 1);
  std::int64_t next_target = row < a.rows ? a.targets[row] : -1;
  RowOfBlock<T, K> x{{}, a.padded, a.vocab};
  for (int buffer = 0; row < a.rows; row += gridDim.x, buffer ^= 1) {
    const int target = next_target < 0 ? -1 : static_cast<int>(next_target);
    if (row + gridDim.x < a.rows) next_target = a.targets[row + gridDim.x];
    wait_copies<1>();
    const float highest = x.take(rows_ahead + buffer * pieces);
    if (target >= 0 && target / kVec % static_cast<int>(blockDim.x) == static_cast<int>(threadIdx.x)) {
      target_logit[buffer] = to_float(reinterpret_cast<const T*>(rows_ahead + buffer * pieces)[target]);
    }
    fetch(row + 2 * static_cast<std::int64_t>(gridDim.x), buffer);
    const SoftmaxSum total = block_total(x.softmax_sum(highest), warps[buffer]);
    if (threadIdx.x == 0 && target >= 0) {
      mine.loss += static_cast<double>(logf(total.sum)) + total.highest - target_logit[buffer];
      mine.tokens += 1;
    }
    if constexpr (kGradient) {
      const float factor = log2f((target >= 0 ? scale : 0.0F) / total.sum);
      x.each([&](const Packed<T>& p, int begin) {
        float f[kVec];
        p.unpack(f);
#pragma unroll
        for (int i = 0; i < kVec; ++i) f[i] = exp2_of((f[i] - total.highest) * kLog2E + factor);
        if (target >= begin && target < begin + kVec) {
#pragma unroll
          for (int i = 0; i < kVec; ++i) f[i] -= begin + i == target ? scale : 0.0F;
        }
        store(a.logits + row * a.padded + begin, f);
      });
    }
  }
  a.totals.add(mine);
}

// Loss and gradient of rows of any dtype and width, which are read from memory twice.
template <class T, bool kGradient>
__global__ void __launch_bounds__(kThreadsTwice) cross_entropy_twice_kernel(Arguments<T> a) {
  __shared__ SoftmaxSum warps[2][kWarp];
  const int step = static_cast<int>(blockDim.x) * kVec, first = static_cast<int>(threadIdx.x) * kVec;
  const float scale = kGradient ? *a.scale : 0.0F;
  Loss mine{};
  int parity = 0;
  for (std::int64_t row = blockIdx.x; row < a.rows; row += gridDim.x, parity ^= 1) {
    T* logits = a.logits + row * a.padded;
    const std::int64_t target64 = a.targets[row];
    const int target = target64 < 0 ? -1 : static_cast<int>(target64);
    const float target_logit = target >= 0 && threadIdx.x == 0 ? to_float(logits[target]) : 0.0F;
    SoftmaxSum sum{-INFINITY, 0};
    Packed<T> packed;
    float x[kVec];
    for (int begin = first; begin < a.padded; begin += step) {
      packed.load(logits + begin);
      masked(packed, begin, a.vocab, x);
      SoftmaxSum eight{highest_of(x, -INFINITY), 0};
      add_exps(x, eight);
      sum = sum + eight;
    }
    const SoftmaxSum total = block_total(sum, warps[parity]);
    if (threadIdx.x == 0 && target >= 0) {
      mine.loss += static_cast<double>(logf(total.sum)) + total.highest - target_logit;
      mine.tokens += 1;
    }
    if constexpr (kGradient) {
      const float inverse = 1.0F / total.sum;
      for (int begin = first; begin < a.padded; begin += step) {
        packed.load(logits + begin);
        masked(packed, begin, a.vocab, x);
        gradient(x, begin, target, total, inverse, target >= 0 ? scale : 0.0F);
        store(logits + begin, x);
      }
    }
  }
  a.totals.add(mine);
}

template <class T>
void launch(void (*kernel)(Arguments<T>), int threads, std::size_t bytes, const Arguments<T>& a,
            cudaStream_t stream) {
  SC_CHECK(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)));
  int each = 0;
  SC_CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, kernel, threads, bytes));
  const std::int64_t resident =
      std::min<std::int64_t>(kMaxLossBlocks, static_cast<std::int64_t>(each) * multiprocessors());
  const auto blocks = static_cast<unsigned>(std::clamp<std::int64_t>(a.rows, 1, resident));
  kernel<<<blocks, threads, bytes, stream>>>(a);
  SC_CHECK(cudaGetLastError());
}

template <class T, bool kGradient, int K = 1>
void launch_once(const Arguments<T>& a, cudaStream_t stream) {
  const int threads = static_cast<int>(round_up(ceil_div(a.padded / kVec, K), kWarp));
  if constexpr (K < kMaxPieces) {
    // A few hundred threads per block let several blocks work on different rows; wide rows need more threads.
    if (threads > (K < 8 ? 256 : kMaxThreads))
      return launch_once < T, kGradient, K < 8 ? 2 * K : K + 1 > (a, stream);
  }
  const std::size_t bytes = std::size_t{2} * a.padded * sizeof(T);
  launch(cross_entropy_kernel<T, K, kGradient>, threads, bytes, a, stream);
}

template <class T, bool kGradient>
void run(const Arguments<T>& a, cudaStream_t stream) {
  if constexpr (sizeof(T) == 2) {
    constexpr int kWidest = kMaxPieces * kMaxThreads * kVec;
    constexpr int kStatic = 2048;  // the kernel's own static use, rounded up
    int device = 0, most = 0;      // the limit is 227 KiB per block on Hopper, less on others
    SC_CHECK(cudaGetDevice(&device));
    SC_CHECK(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
    const bool fits = 2 * static_cast<std::int64_t>(a.padded * sizeof(T)) + kStatic <= most;
    if (fits && a.padded <= kWidest) return launch_once<T, kGradient>(a, stream);
  }
  launch(cross_entropy_twice_kernel<T, kGradient>, kThreadsTwice, 0, a, stream);
}

}  // namespace

std::int64_t cross_entropy_scratch_bytes() {
  return static_cast<std::int64_t>(sizeof(Loss)) * kMaxLossBlocks;
}

void cross_entropy(const CrossEntropy& op, void* scratch, unsigned* counters, cudaStream_t stream) {
  with_type(op.dtype, [&]<class T>(T*) {
    const Arguments<T> a{static_cast<T*>(op.logits),
                         op.targets,
                         op.scale,
                         {static_cast<Loss*>(scratch), counters, op.loss_sum, op.tokens},
                         op.rows,
                         static_cast<int>(op.vocab),
                         static_cast<int>(op.padded)};
    op.scale == nullptr ? run<T, false>(a, stream) : run<T, true>(a, stream);
  });
}

}  // namespace sc::fused
