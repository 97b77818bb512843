// Scratch shared by the GPU operations of one stream, so that a step allocates nothing. CUDA builds only.
#pragma once

#include <cstdint>

#include "common/base/types.h"

namespace sc {

/// At least `bytes` bytes, 256-byte aligned, on the current device, for the operation that the caller
/// enqueues next on the current stream. The operation after that overwrites them. Each stream has its own.
///   Cost    the first call on a stream takes kStreamScratch from LibTorch's allocator (outside the ledger: a
///           constant of the run, see stream_scratch_bytes); a larger request takes more.
///   Life    until the process ends, because captured graphs hold the address.
void* stream_scratch(std::int64_t bytes);

/// kStreamCounters counters on the current device, all 0 while no kernel of the current stream runs: a kernel
/// counts its finished blocks in them, and resets them.
unsigned* stream_counters();

/// The scratch of all streams on all devices, in bytes.
Bytes stream_scratch_bytes();

inline constexpr Bytes kStreamScratch{std::int64_t{32} << 20};
inline constexpr int kStreamCounters = 16;

}  // namespace sc
