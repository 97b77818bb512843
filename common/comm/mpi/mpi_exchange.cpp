#include "common/comm/mpi/mpi_exchange.h"

#include <algorithm>
#include <cstring>

#include "common/comm/rank_sum.h"

namespace sc {
namespace {

constexpr std::int64_t kCopyPiece = 1024 * 1024;            // bytes of a gather's or broadcast's piece
constexpr std::int64_t kMessagePiece = 1024 * 1024 * 1024;  // MPI counts bytes in an int

const char* at_byte(const void* base, std::int64_t offset) { return static_cast<const char*>(base) + offset; }
char* at_byte(void* base, std::int64_t offset) { return static_cast<char*>(base) + offset; }

Rank rank_of(std::int64_t rank) { return Rank{static_cast<int>(rank)}; }

/// A tensor cut into one slice per rank, and each slice into pieces, as rank `me` sees it; in bytes.
class Slices {
 public:
  Slices(const Operation& op, Rank me, std::int64_t piece) : op_(op), me_(to_int(me)), piece_(piece) {}
  [[nodiscard]] std::int64_t me() const { return me_; }
  [[nodiscard]] std::int64_t world() const { return to_int(op_.ranks); }
  [[nodiscard]] std::int64_t pieces() const { return ceil_div(size(0), piece_); }  // slice 0 is the longest
  /// The peer of turn k = 1 .. N-1: each rank begins with its right neighbour, not all with one rank.
  [[nodiscard]] std::int64_t peer(std::int64_t k) const { return (me() + k) % world(); }
  [[nodiscard]] std::int64_t begin(std::int64_t rank) const { return slice(rank).begin * size_of(op_.dtype); }
  /// Where a piece of a rank's slice begins in the full tensor, in bytes.
  [[nodiscard]] std::int64_t begin(std::int64_t rank, std::int64_t piece) const {
    return begin(rank) + piece * piece_;
  }
  /// The length of a piece in bytes; 0 if a shorter slice has no such piece.
  [[nodiscard]] Bytes bytes(std::int64_t rank, std::int64_t piece) const {
    return Bytes(std::clamp<std::int64_t>(size(rank) - piece * piece_, 0, piece_));
  }

 private:
  [[nodiscard]] Slice slice(std::int64_t rank) const {
    return slice_of(op_.elements, rank_of(rank), op_.ranks);
  }
  [[nodiscard]] std::int64_t size(std::int64_t rank) const { return slice(rank).size() * size_of(op_.dtype); }
  Operation op_;
  std::int64_t me_, piece_;
};

/// Exchanges pieces of `full` between all pairs of ranks, and sums this rank's slice into `shard`.
Exchange sum_slices(const Slices& slices, DType dtype, const void* full, void* shard, void* scratch) {
  // The place in the scratch at which rank `from`'s contribution to a piece arrives.
  const auto received = [=](std::int64_t piece, std::int64_t from) -> char* {
    const std::int64_t place = from < slices.me() ? from : from - 1;
    return at_byte(scratch, (piece % kSumPiecesInFlight * (slices.world() - 1) + place) * kSumPiece);
  };
  const auto sum = [=](std::int64_t piece) {
    const std::int64_t elements = slices.bytes(slices.me(), piece).value() / size_of(dtype);
    if (elements == 0) return;
    std::vector<const void*> in;
    for (std::int64_t r = 0; r < slices.world(); ++r)
      in.push_back(r == slices.me() ? at_byte(full, slices.begin(r, piece)) : received(piece, r));
    void* const out[] = {at_byte(shard, piece * kSumPiece)};
    sum_in_rank_order(dtype, in, out, elements);
  };
  const auto post = [=](std::int64_t piece, int stage, Poster& poster) {
    if (stage == 1) {
      sum(piece);
      return false;
    }
    const Bytes mine = slices.bytes(slices.me(), piece);
    for (std::int64_t k = 1; k < slices.world() && mine.value() > 0; ++k) {
      const std::int64_t from = slices.peer(slices.world() - k);
      poster.receive(received(piece, from), mine, rank_of(from), piece);
    }
    for (std::int64_t k = 1; k < slices.world(); ++k) {
      const std::int64_t to = slices.peer(k);
      const Bytes theirs = slices.bytes(to, piece);
      if (theirs.value() > 0) poster.send(at_byte(full, slices.begin(to, piece)), theirs, rank_of(to), piece);
    }
    return true;
  };
  return {slices.pieces(), kSumPiecesInFlight, post};
}

Exchange gather_slices(const Slices& slices, const void* shard, void* full) {
  const auto post = [=](std::int64_t piece, int stage, Poster& poster) {
    if (stage == 1) return false;
    for (std::int64_t k = 1; k < slices.world(); ++k) {
      const std::int64_t from = slices.peer(slices.world() - k);
      const Bytes theirs = slices.bytes(from, piece);
      if (theirs.value() > 0)
        poster.receive(at_byte(full, slices.begin(from, piece)), theirs, rank_of(from), piece);
    }
    const Bytes mine = slices.bytes(slices.me(), piece);
    if (mine.value() == 0) return true;
    const char* own = at_byte(shard, piece * kCopyPiece);
    for (std::int64_t k = 1; k < slices.world(); ++k) poster.send(own, mine, rank_of(slices.peer(k)), piece);
    char* place = at_byte(full, slices.begin(slices.me(), piece));
    if (own != place) std::memcpy(place, own, static_cast<std::size_t>(mine.value()));
    return true;
  };
  return {slices.pieces(), 2, post};
}

Exchange pass_along(std::int64_t bytes, void* data, Rank me, Rank root, WorldSize world) {
  const std::int64_t n = to_int(world), position = (to_int(me) - to_int(root) + n) % n;
  const bool first = position == 0, last = position == n - 1;
  const Rank before = rank_of((to_int(me) + n - 1) % n), after = rank_of((to_int(me) + 1) % n);
  const auto post = [=](std::int64_t piece, int stage, Poster& poster) {
    const std::int64_t begin = piece * kCopyPiece;
    const Bytes length(std::min(kCopyPiece, bytes - begin));
    if (stage == 0 && !first) poster.receive(at_byte(data, begin), length, before, piece);
    if (stage == 1 && !last) poster.send(at_byte(data, begin), length, after, piece);
    return stage < 2;
  };
  return {first && last ? 0 : ceil_div(bytes, kCopyPiece), 2, post};
}

/// Sends or receives one message. All pieces are posted at once, so that no later message overtakes it.
Exchange message(bool sending, std::int64_t bytes, const ExchangeOn& on) {
  const auto post = [=](std::int64_t piece, int stage, Poster& poster) {
    if (stage == 1) return false;
    const std::int64_t begin = piece * kMessagePiece;
    const Bytes length(std::min(kMessagePiece, bytes - begin));
    // All messages have one tag: within a directed pair MPI matches them in the order of posting.
    sending ? poster.send(at_byte(on.in, begin), length, *on.peer, 0)
            : poster.receive(at_byte(on.out, begin), length, *on.peer, 0);
    return true;
  };
  const std::int64_t pieces = std::max<std::int64_t>(1, ceil_div(bytes, kMessagePiece));
  return {pieces, pieces, post};
}

bool meet(std::int64_t /*piece*/, int stage, Poster& poster) {
  if (stage == 0) poster.barrier();
  return stage == 0;
}

}  // namespace

std::vector<Exchange> exchanges_of(const Operation& op, const ExchangeOn& on) {
  const std::int64_t bytes = bytes_of(op.elements, op.dtype).value();
  const auto slices = [&](std::int64_t piece) { return Slices(op, on.me, piece); };
  switch (op.kind) {
    case CommKind::all_reduce: {
      if (op.ranks == WorldSize{1}) return {};
      void* own = at_byte(on.out, slices(kSumPiece).begin(to_int(on.me)));
      return {sum_slices(slices(kSumPiece), op.dtype, on.in, own, on.scratch),
              gather_slices(slices(kCopyPiece), own, on.out)};
    }
    case CommKind::reduce_scatter:
      return {sum_slices(slices(kSumPiece), op.dtype, on.in, on.out, on.scratch)};
    case CommKind::all_gather:
      return {gather_slices(slices(kCopyPiece), on.in, on.out)};
    case CommKind::broadcast:
      return {pass_along(bytes, on.out, on.me, *on.peer, op.ranks)};
    case CommKind::send:
    case CommKind::recv:
      return {message(op.kind == CommKind::send, bytes, on)};
    default:
      return {Exchange{1, 1, meet}};
  }
}

}  // namespace sc
