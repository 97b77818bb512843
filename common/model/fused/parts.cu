// A tensor rank's part of the loss: the softmax over its columns of the vocabulary, before and after the
// gather of all ranks' statistics. Memory-bound.
#include <algorithm>
#include <cmath>

#include "common/model/fused/kernels.h"
#include "common/model/fused/softmax.cuh"

namespace sc::fused {
namespace {

constexpr int kThreads = 512;

// Computes softmax_part's statistics; a block takes one row at a time.
template <class T>
__global__ void __launch_bounds__(kThreads) softmax_part_kernel(SoftmaxPart op) {
  __shared__ SoftmaxSum warps[2][kWarp];
  const int columns = static_cast<int>(op.columns);
  int parity = 0;
  for (std::int64_t row = blockIdx.x; row < op.rows; row += gridDim.x, parity ^= 1) {
    const T* logits = static_cast<const T*>(op.logits) + row * op.padded;
    SoftmaxSum sum{-INFINITY, 0};
    for (int begin = static_cast<int>(threadIdx.x) * kVec; begin < columns; begin += kThreads * kVec) {
      Packed<T> packed;
      float x[kVec];
      packed.load(logits + begin);
      masked(packed, begin, columns, x);
      SoftmaxSum eight{highest_of(x, -INFINITY), 0};
      add_exps(x, eight);
      sum = sum + eight;
    }
    const SoftmaxSum total = block_total(sum, warps[parity]);
    if (threadIdx.x != 0) continue;
    op.statistics[2 * row] = total.highest;
    op.statistics[2 * row + 1] = total.sum;
  }
}

// A row's sum over all ranks, added in rank order: each rank's is of exp(logit - its own maximum) and becomes
// one of exp(logit - the largest).
__device__ inline SoftmaxSum of_all(const SoftmaxGradient& op, std::int64_t row) {
  const auto part = [&](std::int64_t rank) { return op.statistics + 2 * (rank * op.rows + row); };
  SoftmaxSum all{-INFINITY, 0};
  for (std::int64_t rank = 0; rank < op.ranks; ++rank) all.highest = fmaxf(all.highest, part(rank)[0]);
  for (std::int64_t rank = 0; rank < op.ranks; ++rank)
    all.sum += part(rank)[1] * exp_of(part(rank)[0] - all.highest);
  return all;
}

template <class T, bool kGradient>
__global__ void __launch_bounds__(kThreads) softmax_gradient_kernel(SoftmaxGradient op, LossTotals totals) {
  const int columns = static_cast<int>(op.columns), padded = static_cast<int>(op.padded);
  const float scale = kGradient ? *op.scale : 0.0F;
  Loss mine{};
  for (std::int64_t row = blockIdx.x; row < op.rows; row += gridDim.x) {
    T* logits = static_cast<T*>(op.logits) + row * op.padded;
    const std::int64_t wanted = op.targets[row], local = wanted - op.first;
    const int target = 0 <= local && local < columns ? static_cast<int>(local) : -1;
    const SoftmaxSum total = of_all(op, row);
    if (threadIdx.x == 0 && target >= 0) {
      mine.loss += static_cast<double>(logf(total.sum)) + total.highest - to_float(logits[target]);
      mine.tokens += 1;
    }
    if constexpr (kGradient) {
      __syncthreads();  // the target's logit has been read, so its place may be overwritten
      for (int begin = static_cast<int>(threadIdx.x) * kVec; begin < padded; begin += kThreads * kVec) {
        Packed<T> packed;
        float x[kVec];
        packed.load(logits + begin);
        masked(packed, begin, columns, x);
        gradient(x, begin, target, total, 1.0F / total.sum, wanted >= 0 ? scale : 0.0F);
        store(logits + begin, x);
      }
    }
  }
  totals.add(mine);
}

unsigned blocks_of(std::int64_t rows) {
  constexpr int kBlocksEach = 4;  // blocks of kThreads per multiprocessor
  return static_cast<unsigned>(
      std::clamp<std::int64_t>(rows, 1, std::min(kMaxLossBlocks, kBlocksEach * multiprocessors())));
}

}  // namespace

void softmax_part(const SoftmaxPart& op, cudaStream_t stream) {
  with_type(op.dtype,
            [&]<class T>(T*) { softmax_part_kernel<T><<<blocks_of(op.rows), kThreads, 0, stream>>>(op); });
  SC_CHECK(cudaGetLastError());
}

void softmax_gradient(const SoftmaxGradient& op, void* scratch, unsigned* counters, cudaStream_t stream) {
  const LossTotals totals{static_cast<Loss*>(scratch), counters, op.loss_sum, op.tokens};
  with_type(op.dtype, [&]<class T>(T*) {
    const auto kernel =
        op.scale == nullptr ? softmax_gradient_kernel<T, false> : softmax_gradient_kernel<T, true>;
    kernel<<<blocks_of(op.rows), kThreads, 0, stream>>>(op, totals);
  });
  SC_CHECK(cudaGetLastError());
}

}  // namespace sc::fused
