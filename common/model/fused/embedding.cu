// Token and position embedding. Backward uses no atomics: tokens are sorted (stably), and one block sums each
// run of equal tokens, in token order.
#include <algorithm>
#include <bit>
#include <cub/device/device_radix_sort.cuh>

#include "common/model/fused/kernels.h"
#include "common/model/fused/vector.cuh"

namespace sc::fused {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kScratchAlign = 256;

template <class T>
__global__ void __launch_bounds__(kThreads) embed_kernel(Embed op) {
  const std::int64_t pieces = op.width / kVec;
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= op.rows * pieces) return;
  const std::int64_t row = i / pieces, column = i % pieces * kVec, token = op.tokens[row] - op.first;
  float value[kVec] = {};
  if (0 <= token && token < op.vocab) load(static_cast<const T*>(op.wte) + token * op.width + column, value);
  if (op.wpe != nullptr) {
    float position[kVec];
    load(static_cast<const T*>(op.wpe) + row % op.length * op.width + column, position);
#pragma unroll
    for (int k = 0; k < kVec; ++k) value[k] += position[k];
  }
  store(static_cast<T*>(op.x) + row * op.width + column, value);
}

// Writes the sort's keys. Tokens whose rows belong to other ranks get the key `vocab`, which sorts them last.
__global__ void __launch_bounds__(kThreads)
    keys_kernel(const std::int64_t* tokens, std::int64_t first, std::int64_t vocab, std::uint32_t* keys,
                std::uint32_t* rows, std::int64_t n) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= n) return;
  const std::int64_t token = tokens[i] - first;
  keys[i] = static_cast<std::uint32_t>(0 <= token && token < vocab ? token : vocab);
  rows[i] = static_cast<std::uint32_t>(i);
}

template <class T>
__device__ void add_to(T* grad, const float (&sum)[kVec], bool accumulate) {
  float value[kVec] = {};
  if (accumulate) load(grad, value);
#pragma unroll
  for (int k = 0; k < kVec; ++k) value[k] += sum[k];
  store(grad, value);
}

// Adds rows [first, end) of a run, all with token `key`: lane y takes every blockDim.y-th row, then the lanes
// are added in order.
template <class T, class G>
__device__ void sum_run(const std::uint32_t* rows, std::int64_t first, std::int64_t end, const T* grad_x,
                        G* grad, std::int64_t width, bool accumulate) {
  extern __shared__ float shared[];  // [blockDim.y, blockDim.x * kVec]
  const int line = static_cast<int>(blockDim.x) * kVec;
  float* mine = shared + threadIdx.x * kVec;
  for (std::int64_t base = 0; base < width; base += line) {
    const std::int64_t column = base + threadIdx.x * kVec;
    const std::int64_t stop = column < width ? end : 0;
    float sum[kVec] = {};
#pragma unroll 4
    for (std::int64_t i = first + threadIdx.y; i < stop; i += blockDim.y) {
      float value[kVec];
      load(grad_x + rows[i] * width + column, value);
#pragma unroll
      for (int k = 0; k < kVec; ++k) sum[k] += value[k];
    }
#pragma unroll
    for (int k = 0; k < kVec; ++k) mine[threadIdx.y * line + k] = sum[k];
    __syncthreads();
    if (threadIdx.y == 0 && column < width) {
      for (int y = 1; y < static_cast<int>(blockDim.y); ++y) {
#pragma unroll
        for (int k = 0; k < kVec; ++k) sum[k] += mine[y * line + k];
      }
      add_to(grad + column, sum, accumulate);
    }
    __syncthreads();
  }
}

// A run of more than kLong equal tokens gets a larger block of its own; texts have few tokens so frequent.
constexpr int kLong = 64;
constexpr int kThreadsOfLong = 1024;

__device__ inline bool is_long(const std::uint32_t* keys, std::int64_t first, std::int64_t n) {
  return first + kLong < n && keys[first + kLong] == keys[first];
}

// Sums the runs of up to kLong rows, each by the block at the run's first position.
template <class T, class G>
__global__ void short_runs_kernel(const std::uint32_t* keys, const std::uint32_t* rows, const T* grad_x,
                                  G* grad_wte, std::int64_t n, std::int64_t vocab, std::int64_t width,
                                  bool accumulate) {
  const std::int64_t first = blockIdx.x;
  const std::uint32_t key = keys[first];
  if (key == vocab || (first > 0 && keys[first - 1] == key) || is_long(keys, first, n)) return;
  std::int64_t end = first + 1;
  while (end < n && keys[end] == key) ++end;
  sum_run(rows, first, end, grad_x, grad_wte + key * width, width, accumulate);
}

// Sums the longer runs, each by the block at the first multiple of kLong in it; every long run has one.
template <class T, class G>
__global__ void __launch_bounds__(kThreadsOfLong)
    long_runs_kernel(const std::uint32_t* keys, const std::uint32_t* rows, const T* grad_x, G* grad_wte,
                     std::int64_t n, std::int64_t vocab, std::int64_t width, bool accumulate) {
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kLong;
  const std::uint32_t key = keys[at];
  if (key == vocab || (at > 0 && keys[at - kLong] == key)) return;
  const int thread = static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x);
  const int threads = static_cast<int>(blockDim.x * blockDim.y);
  const std::int64_t before = at - 1 - thread;
  const std::int64_t first = at - __syncthreads_count(thread < kLong && before >= 0 && keys[before] == key);
  if (!is_long(keys, first, n)) return;
  std::int64_t end = at;
  for (int same = threads; same == threads; end += same) {
    same = __syncthreads_count(end + thread < n && keys[end + thread] == key);
  }
  sum_run(rows, first, end, grad_x, grad_wte + key * width, width, accumulate);
}

// Sums the gradients at one position over its tokens; one without tokens becomes zero or stays unchanged.
template <class T, class G>
__global__ void __launch_bounds__(kThreads) positions_kernel(PositionsBackward op) {
  const std::int64_t i = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kVec;
  if (i >= op.context * op.width) return;
  const std::int64_t position = i / op.width, column = i % op.width, begin = op.first % op.length;
  // The first of this run's rows that has the position.
  const std::int64_t first = position - begin + (position < begin ? op.length : 0);
  float sum[kVec] = {};
  if (position < op.length) {
#pragma unroll 4
    for (std::int64_t row = first; row < op.rows; row += op.length) {
      float value[kVec];
      load(static_cast<const T*>(op.grad_x) + row * op.width + column, value);
#pragma unroll
      for (int k = 0; k < kVec; ++k) sum[k] += value[k];
    }
  }
  add_to(static_cast<G*>(op.grad_wpe) + i, sum, op.accumulate);
}

// The number of bits that hold the keys 0 to `vocab`.
int key_bits(std::int64_t vocab) {
  return std::max(1, static_cast<int>(std::bit_width(static_cast<std::uint64_t>(vocab))));
}

// The layout of the sort's scratch: keys and rows before and after sorting, then CUB's own.
struct SortScratch {
  SortScratch(std::int64_t tokens, std::int64_t vocab)
      : array(round_up(tokens * std::int64_t{4}, kScratchAlign)) {
    SC_CHECK(cub::DeviceRadixSort::SortPairs(
        nullptr, cub_bytes, static_cast<const std::uint32_t*>(nullptr), static_cast<std::uint32_t*>(nullptr),
        static_cast<const std::uint32_t*>(nullptr), static_cast<std::uint32_t*>(nullptr), tokens, 0,
        key_bits(vocab)));
  }
  [[nodiscard]] std::int64_t total() const { return 4 * array + static_cast<std::int64_t>(cub_bytes); }
  static std::uint32_t* at(void* scratch, std::int64_t offset) {
    return reinterpret_cast<std::uint32_t*>(static_cast<char*>(scratch) + offset);
  }
  std::int64_t array;
  std::size_t cub_bytes = 0;
};

template <class T, class G>
void run(const EmbedBackward& op, void* scratch, cudaStream_t stream) {
  const std::int64_t n = op.rows;
  SortScratch sort(n, op.vocab);
  std::uint32_t *keys = SortScratch::at(scratch, 0), *rows = SortScratch::at(scratch, sort.array),
                *sorted_keys = SortScratch::at(scratch, 2 * sort.array),
                *sorted_rows = SortScratch::at(scratch, 3 * sort.array);
  auto* grad_wte = static_cast<G*>(op.grad_wte);
  const auto* grad_x = static_cast<const T*>(op.grad_x);
  keys_kernel<<<static_cast<unsigned>(ceil_div(n, kThreads)), kThreads, 0, stream>>>(op.tokens, op.first,
                                                                                     op.vocab, keys, rows, n);
  SC_CHECK(cudaGetLastError());
  SC_CHECK(cub::DeviceRadixSort::SortPairs(
      SortScratch::at(scratch, 4 * sort.array), sort.cub_bytes, static_cast<const std::uint32_t*>(keys),
      sorted_keys, static_cast<const std::uint32_t*>(rows), sorted_rows, n, 0, key_bits(op.vocab), stream));
  if (!op.accumulate) {
    SC_CHECK(cudaMemsetAsync(grad_wte, 0, static_cast<std::size_t>(op.vocab * op.width) * sizeof(G), stream));
  }
  const auto columns = static_cast<unsigned>(std::min<std::int64_t>(kThreads, op.width / kVec));
  const auto sum_runs = [&](auto kernel, std::int64_t blocks, int threads) {
    const dim3 block(columns, std::max(1U, threads / columns));
    const std::size_t bytes = std::size_t{block.x} * block.y * kVec * sizeof(float);
    kernel<<<static_cast<unsigned>(blocks), block, bytes, stream>>>(
        sorted_keys, sorted_rows, grad_x, grad_wte, n, op.vocab, op.width, op.accumulate);
    SC_CHECK(cudaGetLastError());
  };
  sum_runs(short_runs_kernel<T, G>, n, kThreads);
  sum_runs(long_runs_kernel<T, G>, ceil_div(n, kLong), kThreadsOfLong);
}

}  // namespace

void embed(const Embed& op, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(ceil_div(op.rows * op.width / kVec, kThreads));
  with_type(op.dtype, [&]<class T>(T*) { embed_kernel<T><<<blocks, kThreads, 0, stream>>>(op); });
  SC_CHECK(cudaGetLastError());
}

std::int64_t embed_backward_scratch_bytes(std::int64_t tokens, std::int64_t vocab) {
  return SortScratch(tokens, vocab).total();
}

void embed_backward(const EmbedBackward& op, void* scratch, cudaStream_t stream) {
  with_type(op.dtype, [&]<class T>(T*) {
    op.grad_dtype == op.dtype ? run<T, T>(op, scratch, stream) : run<T, float>(op, scratch, stream);
  });
}

void positions_backward(const PositionsBackward& op, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(ceil_div(op.context * op.width, kThreads * kVec));
  with_type(op.dtype, [&]<class T>(T*) {
    const auto kernel = op.grad_dtype == op.dtype ? positions_kernel<T, T> : positions_kernel<T, float>;
    kernel<<<blocks, kThreads, 0, stream>>>(op);
  });
  SC_CHECK(cudaGetLastError());
}

}  // namespace sc::fused
