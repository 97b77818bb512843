// For kernels: eight elements at a time, sums over a warp, asynchronous copies. Arithmetic is fp32.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "common/base/cuda_check.h"
#include "common/base/cuda_numbers.cuh"

namespace sc::fused {

inline constexpr int kVec = 8;  // elements that a thread reads at once: 16 bytes of a 16-bit type
inline constexpr int kWarp = 32;

/// Eight elements as they lie in memory: one 16-byte load for 16-bit types, two for fp32.
template <class T>
struct Packed {
  static constexpr int kWords = kVec * sizeof(T) / sizeof(uint4);
  uint4 word[kWords];

  __device__ void load(const T* p) {
#pragma unroll
    for (int i = 0; i < kWords; ++i) word[i] = reinterpret_cast<const uint4*>(p)[i];
  }
  __device__ void store(T* p) const {
#pragma unroll
    for (int i = 0; i < kWords; ++i) reinterpret_cast<uint4*>(p)[i] = word[i];
  }
  __device__ void unpack(float (&f)[kVec]) const {
    const T* element = reinterpret_cast<const T*>(word);
#pragma unroll
    for (int i = 0; i < kVec; ++i) f[i] = to_float(element[i]);
  }
  __device__ void pack(const float (&f)[kVec]) {
    T* element = reinterpret_cast<T*>(word);
#pragma unroll
    for (int i = 0; i < kVec; ++i) element[i] = from_float<T>(f[i]);
  }
};

template <class T>
__device__ inline void load(const T* p, float (&f)[kVec]) {
  Packed<T> packed;
  packed.load(p);
  packed.unpack(f);
}
template <class T>
__device__ inline void store(T* p, const float (&f)[kVec]) {
  Packed<T> packed;
  packed.pack(f);
  packed.store(p);
}

/// The sum over a warp, added in one order and the same in all lanes.
template <class T>
__device__ inline T warp_sum(T x) {
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2) x += __shfl_xor_sync(~0U, x, offset);
  return x;
}

/// Copies 16 bytes from global to shared memory in the background. A thread that reads only its own copies
/// needs no barrier, only wait_copies.
__device__ inline void copy_async(void* shared, const void* global) {
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(global) : "memory");
}
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/// Waits until at most `kPending` of this thread's groups of copies are in flight.
template <int kPending>
__device__ inline void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

/// Counts this block as finished. True in the last block, which sees what the others wrote and resets the
/// counter to 0. One thread per block calls it, after a barrier.
__device__ inline bool last_block(unsigned* counter) {
  __threadfence();
  const bool last = atomicAdd(counter, 1U) == gridDim.x * gridDim.y - 1;
  if (last) *counter = 0;
  __threadfence();
  return last;
}

inline int multiprocessors() {
  int device = 0, count = 0;
  SC_CHECK(cudaGetDevice(&device));
  SC_CHECK(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device));
  return count;
}

}  // namespace sc::fused
