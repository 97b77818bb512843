// A row's softmax by a block of threads, and the loss of the rows: shared by cross entropy over a whole
// vocabulary and over a part.
#pragma once

#include "common/model/fused/vector.cuh"

namespace sc::fused {

inline constexpr float kLog2E = 1.4426950408889634F;

// The maximum of some elements, and the sum of exp(x - highest); -infinity and 0 for no elements.
struct SoftmaxSum {
  float highest, sum;
};

// 2^x accurate to 22 bits, in one instruction; 0 below 2^-126.
__device__ inline float exp2_of(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ inline float exp_of(float x) { return exp2_of(x * kLog2E); }

__device__ inline SoftmaxSum operator+(SoftmaxSum a, SoftmaxSum b) {
  const float highest = fmaxf(a.highest, b.highest);
  if (highest == -INFINITY) return {highest, a.sum + b.sum};
  return {highest, a.sum * exp_of(a.highest - highest) + b.sum * exp_of(b.highest - highest)};
}

__device__ inline SoftmaxSum warp_total(SoftmaxSum v) {
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    v = v + SoftmaxSum{__shfl_xor_sync(~0U, v.highest, offset), __shfl_xor_sync(~0U, v.sum, offset)};
  }
  return v;
}

// The total over a block, the same in all threads. `shared` alternates by row: one barrier is enough.
__device__ inline SoftmaxSum block_total(SoftmaxSum v, SoftmaxSum (&shared)[kWarp]) {
  v = warp_total(v);
  if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = v;
  __syncthreads();
  const int lane = threadIdx.x % kWarp;
  return warp_total(lane < static_cast<int>(blockDim.x / kWarp) ? shared[lane] : SoftmaxSum{-INFINITY, 0});
}

// Unpacks eight logits from column `begin` on; padding becomes -infinity.
template <class T>
__device__ inline void masked(const Packed<T>& packed, int begin, int vocab, float (&x)[kVec]) {
  packed.unpack(x);
  if (begin + kVec <= vocab) return;
#pragma unroll
  for (int i = 0; i < kVec; ++i) {
    if (begin + i >= vocab) x[i] = -INFINITY;
  }
}

__device__ inline float highest_of(const float (&x)[kVec], float highest) {
#pragma unroll
  for (int i = 0; i < kVec; ++i) highest = fmaxf(highest, x[i]);
  return highest;
}

// Adds exp(x - s.highest) of eight logits. If all is padding, 0 replaces the maximum; a NaN stays NaN.
__device__ inline void add_exps(const float (&x)[kVec], SoftmaxSum& s) {
  const float base = s.highest == -INFINITY ? 0.0F : s.highest;
#pragma unroll
  for (int i = 0; i < kVec; ++i) s.sum += exp_of(x[i] - base);
}

// Replaces eight logits by their gradient, (softmax - onehot) * scale.
__device__ inline void gradient(float (&x)[kVec], int begin, int target, SoftmaxSum total, float inverse,
                                float scale) {
#pragma unroll
  for (int i = 0; i < kVec; ++i) {
    float p = exp_of(x[i] - total.highest) * inverse;
    if (begin + i == target) p -= 1.0F;
    x[i] = p * scale;
  }
}

// What a block's rows add to the loss and token count. The block's first thread sums its rows, and the last
// block to finish adds the blocks in order.
struct Loss {
  double loss, tokens;
};
inline constexpr int kMaxLossBlocks = 1024;

struct LossTotals {
  Loss* of_block;  // [blocks]
  unsigned* counter;
  double *loss_sum, *tokens;

  __device__ void add(Loss mine) const {
    if (threadIdx.x != 0) return;
    of_block[blockIdx.x] = mine;
    if (!last_block(counter)) return;
    double loss = 0, count = 0;
    for (unsigned b = 0; b < gridDim.x; ++b) {
      const volatile Loss& of = of_block[b];
      loss += of.loss;
      count += of.tokens;
    }
    *loss_sum += loss;
    *tokens += count;
  }
};

}  // namespace sc::fused
