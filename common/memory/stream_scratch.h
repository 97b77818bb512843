// Scratch that GPU operations of one stream use one after another, so that a step allocates nothing. CUDA
// builds only.
#pragma once

#include <cstdint>

#include "common/base/types.h"

namespace sc {

/// At least `bytes` bytes on the current device for the operation that the caller is about to enqueue on the
/// current stream, 256-byte aligned. The next operation on the stream overwrites them; other streams have
/// their own.
///   Cost    the first call on a stream takes kStreamScratch from LibTorch's allocator (outside the ledger: a
///           constant of the run, see stream_scratch_bytes), a larger request takes more.
///   Life    until the process ends: a captured graph holds the address.
void* stream_scratch(std::int64_t bytes);

/// kStreamCounters counters on the current device that are 0 whenever none of the current stream's kernels
/// runs: a kernel that counts its finished blocks sets them back.
unsigned* stream_counters();

/// What all streams of all devices hold.
Bytes stream_scratch_bytes();

inline constexpr Bytes kStreamScratch{std::int64_t{32} << 20};
inline constexpr int kStreamCounters = 16;

}  // namespace sc
