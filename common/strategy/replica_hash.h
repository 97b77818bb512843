// Tests whether replicas are equal to the bit by comparing 64-bit hashes: only eight bytes per rank travel.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace sc {

/// The hash of a contiguous tensor of any dtype: the sum, modulo 2^64, of a mix of each 8-byte word (the last
/// one filled up with zeros) and its place. Equal bytes give equal hashes on CPU and GPU, in any order of the
/// sum. Waits for a GPU.
std::int64_t replica_hash(const at::Tensor& t);
/// The hash of a tensor on the current GPU, 8-byte aligned; replica_hash() calls it.
///   Errors  InputError 69 without GPU code.
std::int64_t replica_hash_cuda(const at::Tensor& t);

/// The first rank whose hash differs from rank 0's, or -1. `hashes` is [N] int64, on any device.
int first_different(const at::Tensor& hashes);
/// Whether replicas are compared after step `step` (from 0): after every `every`-th step; never if that is 0.
constexpr bool verifies_after(std::int64_t step, std::int64_t every) {
  return every != 0 && (step + 1) % every == 0;
}

}  // namespace sc
