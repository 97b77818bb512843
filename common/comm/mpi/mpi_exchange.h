// The MPI operations as lists of messages: what each rank sends and receives, piece by piece. Requests,
// progress and threads are the business of mpi_engine.h, which runs these lists. Internal to comm.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "common/base/types.h"
#include "common/comm/scratch.h"
#include "common/watch/comm_op.h"

namespace sc {

/// Receives the messages that an exchange posts.
class Poster {
 public:
  virtual ~Poster() = default;
  virtual void send(const void* data, Bytes bytes, Rank to, std::int64_t piece) = 0;
  virtual void receive(void* data, Bytes bytes, Rank from, std::int64_t piece) = 0;
  virtual void barrier() = 0;
};

/// Pieces 0 .. pieces - 1 pass through `in_flight` slots; piece p uses slot p % in_flight. A piece has
/// stages: all messages of one stage must have ended before the next stage is posted.
struct Exchange {
  std::int64_t pieces, in_flight;
  /// Posts the messages of a stage, if it has any. False: the piece has ended.
  std::function<bool(std::int64_t piece, int stage, Poster& poster)> post;
};

/// The memory that an operation works on, and who takes part.
struct ExchangeOn {
  Rank me;
  const void* in;
  void* out;
  std::optional<Rank> peer;  // as in Communicator::issue
  void* scratch;             // the group's scratch, mpi_scratch_bytes() long
};
/// The exchanges that carry out an operation, one after another.
///   reduce_scatter  every rank sends slice p of the full tensor to rank p, and sums what it receives in rank
///                   order
///   all_gather      every rank sends its slice to every other rank, and copies its own unless it is in place
///   all_reduce      reduce_scatter, then all_gather, with the slices of slice_of, in place
///   broadcast       a chain from the root through ascending ranks: each passes a piece on as soon as it has
///                   it
std::vector<Exchange> exchanges_of(const Operation& op, const ExchangeOn& on);

}  // namespace sc
