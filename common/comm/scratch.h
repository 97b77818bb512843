// Sizes of the scratch that transports allocate, for plans too. No torch.
#pragma once

#include <cstdint>

#include "common/base/types.h"

namespace sc {

/// The piece of an MPI reduce_scatter, in bytes: large enough for the transport's bandwidth, small enough for
/// the caches. Four are in flight, so that work waits when the MPI thread wakes from a nap.
inline constexpr std::int64_t kSumPiece = 256 * 1024;
inline constexpr std::int64_t kSumPiecesInFlight = 4;
/// The scratch of one MPI group, 4 (N-1) 256 KiB: four pieces from every other rank.
inline Bytes mpi_scratch_bytes(WorldSize world) {
  return Bytes(kSumPiecesInFlight * kSumPiece) * (to_int(world) - 1);
}

/// The piece of StagedCommunicator, in bytes; its scratch has two for each rank.
inline constexpr std::int64_t kStagedPiece = 1024 * 1024;
inline Bytes staged_scratch_bytes(WorldSize world) { return Bytes(2 * to_int(world) * kStagedPiece); }

}  // namespace sc
