#include "lessons/06_infinity/exercise/fetch_ahead.h"

#include "common/base/not_solved.h"

namespace sc {

/// Makes so many updates of all pieces, one number after the other.
///   Memory   a buffer holds one piece, from the beginning of its read to the end of its write.
///   Disk     every number is read once and written once. No read begins while a write of the same piece, or
///            out of the same buffer, goes on.
///   Overlap  with three buffers or more the disk works while a piece is updated: all updates take as long as
///            the slower of the two needs, plus one piece's turn at the ends.
///   After    everything has been written.
void update_through_window(PiecesOnDisk& disk, std::int64_t updates) {
  // TODO: which number takes a buffer after number k has left it? And when can its read begin?
  throw NotSolved();
}

}  // namespace sc
