// Are the replicas equal to the bit? Compared by a 64-bit hash, so that only eight bytes a rank travel.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace sc {

/// FNV-1a over the 8-byte words of a contiguous tensor of any dtype (and the bytes left over); equal bytes
/// give equal hashes.
std::int64_t replica_hash(const at::Tensor& t);

/// The first rank whose hash differs from rank 0's, or -1.  hashes: [N] int64.
int first_different(const at::Tensor& hashes);

}  // namespace sc
