// The operations over MPI as lists of messages: what each rank sends and receives, piece by piece. Knows no
// request, no progress, no thread: mpi_engine.h runs these. Internal to comm.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "common/base/types.h"
#include "common/comm/scratch.h"
#include "common/watch/comm_op.h"

namespace sc {

/// Where an exchange puts its messages.
class Poster {
 public:
  virtual ~Poster() = default;
  virtual void send(const void* data, Bytes bytes, Rank to, std::int64_t piece) = 0;
  virtual void receive(void* data, Bytes bytes, Rank from, std::int64_t piece) = 0;
  virtual void barrier() = 0;
};

/// Pieces 0, 1, ..., pieces - 1 go through `in_flight` slots, piece p through slot p % in_flight. A piece has
/// stages: the messages of one must have ended before the next is posted.
struct Exchange {
  std::int64_t pieces, in_flight;
  /// Posts the messages of a stage, if it has any; false: the piece has ended.
  std::function<bool(std::int64_t piece, int stage, Poster& poster)> post;
};

/// Whose memory an operation works on.
struct ExchangeOn {
  Rank me;
  const void* in;
  void* out;
  std::optional<Rank> peer;  // as Communicator::issue has it
  void* scratch;             // of the group: mpi_scratch_bytes
};
/// What the operation comes to, one after the other.
///   reduce_scatter  every rank sends slice p of the full tensor to rank p, and sums what it receives in rank
///                   order
///   all_gather      every rank sends its slice to every other; its own is copied unless it is there already
///   all_reduce      both of them, with the slices of slice_of, in place
///   broadcast       a chain from the root through ascending ranks: each passes a piece on as soon as it has
///                   it
std::vector<Exchange> exchanges_of(const Operation& op, const ExchangeOn& on);

}  // namespace sc
