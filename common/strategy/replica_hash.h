// Are the replicas equal to the bit? Compared by a 64-bit hash, so that only eight bytes a rank travel.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace sc {

/// Of a contiguous tensor of any dtype: the sum, modulo 2^64, of a mix of each 8-byte word (the last one
/// filled up with zeros) and its place. Equal bytes give equal hashes, on a CPU and on a GPU; the order of
/// the sum does not matter.  Waits for a GPU.
std::int64_t replica_hash(const at::Tensor& t);
/// The same of a tensor on the current GPU, 8-byte aligned.  Errors: InputError 69 without GPU code.
std::int64_t replica_hash_cuda(const at::Tensor& t);

/// The first rank whose hash differs from rank 0's, or -1.  hashes: [N] int64, on any device.
int first_different(const at::Tensor& hashes);
/// Whether replicas are compared after `step`: every `every`-th one, from 0; never with 0.
constexpr bool verifies_after(std::int64_t step, std::int64_t every) {
  return every != 0 && (step + 1) % every == 0;
}

}  // namespace sc
