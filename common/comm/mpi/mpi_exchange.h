// The collectives over MPI as lists of messages: what each rank sends and receives, piece by piece. Knows no
// request, no progress, no thread: mpi_engine.h runs these. Internal to comm.
#pragma once

#include <memory>
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

/// Pieces 0, 1, ..., pieces() - 1 go through `in_flight` slots, piece p through slot p % in_flight. A piece
/// has stages: the messages of one must have ended before the next is posted.
class Exchange {
 public:
  virtual ~Exchange() = default;
  [[nodiscard]] virtual std::int64_t pieces() const = 0;
  [[nodiscard]] virtual std::int64_t in_flight() const = 0;
  /// Posts the messages of a stage, if it has any; false: the piece has ended.
  virtual bool post(std::int64_t piece, int stage, Poster& poster) = 0;
};

/// One rank's view of a tensor that is cut into one slice a rank.
struct SlicedTensor {
  DType dtype;
  std::vector<Slice> slices;  // elements, by rank
  Rank me;
};
SlicedTensor equal_slices(const Operation& op, Rank me, WorldSize world);   // reduce_scatter, all_gather
SlicedTensor ragged_slices(const Operation& op, Rank me, WorldSize world);  // all_reduce: slice_of

/// Every rank sends slice p of `full` to rank p, and sums what it receives in rank order into `shard`.
/// `scratch`: kSumPiecesInFlight * (N - 1) * kSumPiece bytes.
std::unique_ptr<Exchange> exchange_and_sum(SlicedTensor shape, const void* full, void* shard, void* scratch);
/// Every rank sends its slice to every other; own slice: copied from `shard` unless it is there already.
std::unique_ptr<Exchange> exchange_slices(SlicedTensor shape, const void* shard, void* full);
/// A chain from the root through ascending ranks: each passes a piece on as soon as it has it.
std::unique_ptr<Exchange> pass_along(Bytes bytes, void* data, Rank me, Rank root, WorldSize world);
std::unique_ptr<Exchange> send_message(Bytes bytes, const void* data, Rank to);
std::unique_ptr<Exchange> receive_message(Bytes bytes, void* data, Rank from);
std::unique_ptr<Exchange> meet();

}  // namespace sc
