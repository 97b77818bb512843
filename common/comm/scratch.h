// Scratch that the transports need, also known to plans. No torch.
#pragma once

#include <cstdint>

#include "common/base/types.h"

namespace sc {

/// The piece of an MPI reduce_scatter: large enough for the transport's bandwidth, small enough for the
/// caches. Four in flight, so that there is work when the MPI thread wakes from a nap between polls.
inline constexpr std::int64_t kSumPiece = 256 * 1024;
inline constexpr std::int64_t kSumPiecesInFlight = 4;
/// Scratch of one group, 4 (N-1) 256 KiB: four pieces from every other rank. 0 for a world of one.
inline Bytes mpi_scratch_bytes(WorldSize world) {
  return Bytes(kSumPiecesInFlight * kSumPiece) * (to_int(world) - 1);
}

/// The piece of StagedCommunicator, for several ranks on one GPU; each rank has two.
inline constexpr std::int64_t kStagedPiece = 1024 * 1024;
inline Bytes staged_scratch_bytes(WorldSize world) { return Bytes(2 * to_int(world) * kStagedPiece); }

}  // namespace sc
