// The MPI operations as lists of messages: what each rank sends and receives, piece by piece. mpi_engine.h
// runs these lists. Internal to comm.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "common/base/types.h"
#include "common/comm/scratch.h"
#include "common/watch/comm_op.h"

namespace sc {

/// The functions by which an exchange sends and receives.
class Poster {
 public:
  virtual ~Poster() = default;
  virtual void send(const void* data, Bytes bytes, Rank to, std::int64_t piece) = 0;
  virtual void receive(void* data, Bytes bytes, Rank from, std::int64_t piece) = 0;
  virtual void barrier() = 0;
};

/// One round of messages, cut into pieces 0 .. pieces - 1 of which `in_flight` run at a time: piece p uses
/// slot p % in_flight. A piece has stages; all messages of one stage must have ended before the next stage is
/// posted.
struct Exchange {
  std::int64_t pieces, in_flight;
  /// Posts the messages of one stage of a piece. False if the piece has no such stage: it has ended.
  std::function<bool(std::int64_t piece, int stage, Poster& poster)> post;
};

/// The tensors, scratch and ranks of an operation.
struct ExchangeOn {
  Rank me;
  const void* in;
  void* out;
  std::optional<Rank> peer;  // as in Communicator::issue
  void* scratch;             // the group's scratch, mpi_scratch_bytes() long
};
/// The exchanges that carry out an operation, one after another.
///   reduce_scatter  every rank sends slice p of the full tensor to rank p; each adds in rank order
///   all_gather      every rank sends its slice to every other rank, and copies its own unless it is in place
///   all_reduce      reduce_scatter, then all_gather, with the slices of slice_of, in place
///   broadcast       a chain from the root through ascending ranks: each passes pieces on at once
std::vector<Exchange> exchanges_of(const Operation& op, const ExchangeOn& on);

}  // namespace sc
