#include <c10/cuda/CUDAStream.h>

#include <algorithm>

#include "common/base/cuda_check.h"
#include "common/memory/stream_scratch.h"
#include "common/strategy/hash_word.h"
#include "common/strategy/replica_hash.h"

namespace sc {
namespace {

constexpr int kThreads = 256;

__device__ std::uint64_t word_at(const unsigned char* bytes, std::int64_t size, std::int64_t place) {
  const std::int64_t begin = place * 8;
  if (begin + 8 <= size) return *reinterpret_cast<const std::uint64_t*>(bytes + begin);
  std::uint64_t word = 0;
  for (std::int64_t i = begin; i < size; ++i) word |= static_cast<std::uint64_t>(bytes[i]) << 8 * (i - begin);
  return word;
}

__global__ void hash_kernel(const unsigned char* bytes, std::int64_t size, unsigned long long* hash) {
  std::uint64_t sum = 0;
  for (std::int64_t place = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; place * 8 < size;
       place += static_cast<std::int64_t>(gridDim.x) * kThreads) {
    sum += hash_word(word_at(bytes, size, place), static_cast<std::uint64_t>(place));
  }
  atomicAdd(hash, static_cast<unsigned long long>(sum));
}

}  // namespace

std::int64_t replica_hash_cuda(const at::Tensor& t) {
  const auto size = static_cast<std::int64_t>(t.nbytes());
  const cudaStream_t stream = c10::cuda::getCurrentCUDAStream().stream();
  auto* device = static_cast<unsigned long long*>(stream_scratch(sizeof(unsigned long long)));
  unsigned long long hash = 0;
  SC_CHECK(cudaMemsetAsync(device, 0, sizeof hash, stream));
  const std::int64_t blocks = std::min<std::int64_t>(1024, ceil_div(size, std::int64_t{8} * kThreads));
  if (blocks > 0) {
    hash_kernel<<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(
        static_cast<const unsigned char*>(t.const_data_ptr()), size, device);
    SC_CHECK(cudaGetLastError());
  }
  SC_CHECK(cudaMemcpyAsync(&hash, device, sizeof hash, cudaMemcpyDeviceToHost, stream));
  SC_CHECK(cudaStreamSynchronize(stream));
  return static_cast<std::int64_t>(hash);
}

}  // namespace sc
