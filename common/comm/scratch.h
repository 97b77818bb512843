// What transports take for themselves: plans know it, too. No torch.
#pragma once

#include <cstdint>

#include "common/base/types.h"

namespace sc {

/// MPI: a piece of a reduce_scatter: big enough for the transport's bandwidth, small enough for the caches.
/// Four in flight leave work for a thread that naps between polls.
inline constexpr std::int64_t kSumPiece = 256 * 1024;
inline constexpr std::int64_t kSumPiecesInFlight = 4;
/// Of a group, 4 (N-1) 256 KiB: four pieces from every other rank. 0 for a world of one.
inline Bytes mpi_scratch_bytes(WorldSize world) {
  return Bytes(kSumPiecesInFlight * kSumPiece) * (to_int(world) - 1);
}

/// Several ranks on one GPU: two pieces a rank.
inline constexpr std::int64_t kStagedPiece = 1024 * 1024;
inline Bytes staged_scratch_bytes(WorldSize world) { return Bytes(2 * to_int(world) * kStagedPiece); }

}  // namespace sc
