#include "common/comm/mpi/mpi_exchange.h"

#include <algorithm>
#include <cstring>

#include "common/comm/rank_sum.h"

namespace sc {
namespace {

constexpr std::int64_t kCopyPiece = 1024 * 1024;            // of a gather or broadcast
constexpr std::int64_t kMessagePiece = 1024 * 1024 * 1024;  // MPI counts bytes in an int

const char* at_byte(const void* base, std::int64_t offset) { return static_cast<const char*>(base) + offset; }
char* at_byte(void* base, std::int64_t offset) { return static_cast<char*>(base) + offset; }

/// The peers of a sliced tensor, and what piece p of each slice is, in bytes.
class SlicedExchange : public Exchange {
 public:
  SlicedExchange(SlicedTensor shape, std::int64_t piece_bytes)
      : shape_(std::move(shape)), element_(size_of(shape_.dtype)), piece_(piece_bytes) {
    for (const Slice& slice : shape_.slices) longest_ = std::max(longest_, slice.size() * element_);
  }
  std::int64_t pieces() const override { return ceil_div(longest_, piece_); }

 protected:
  [[nodiscard]] std::int64_t world() const { return static_cast<std::int64_t>(shape_.slices.size()); }
  [[nodiscard]] std::int64_t me() const { return to_int(shape_.me); }
  /// The k-th peer, k = 1 .. N-1: each rank starts with its right neighbour, so that not all send to the same
  /// one.
  [[nodiscard]] std::int64_t peer(std::int64_t k) const { return (me() + k) % world(); }
  [[nodiscard]] const Slice& slice(std::int64_t rank) const {
    return shape_.slices[static_cast<std::size_t>(rank)];
  }
  [[nodiscard]] std::int64_t begin_byte(std::int64_t rank) const { return slice(rank).begin * element_; }
  /// Bytes of piece `piece` of a rank's slice; 0 where a shorter slice has no such piece.
  [[nodiscard]] Bytes piece_bytes(std::int64_t rank, std::int64_t piece) const {
    return Bytes(std::clamp<std::int64_t>(slice(rank).size() * element_ - piece * piece_, 0, piece_));
  }

  SlicedTensor shape_;
  std::int64_t element_, piece_, longest_ = 0;
};

class ExchangeAndSum : public SlicedExchange {
 public:
  ExchangeAndSum(SlicedTensor shape, const void* full, void* shard, void* scratch)
      : SlicedExchange(std::move(shape), kSumPiece), full_(full), shard_(shard), scratch_(scratch) {}
  std::int64_t in_flight() const override { return kSumPiecesInFlight; }
  bool post(std::int64_t piece, int stage, Poster& poster) override {
    if (stage == 1) {
      sum(piece);
      return false;
    }
    const Bytes mine = piece_bytes(me(), piece);
    for (std::int64_t k = 1; k < world(); ++k) {
      const std::int64_t from = peer(world() - k);
      if (mine.value() > 0) poster.receive(received(piece, from), mine, Rank{static_cast<int>(from)}, piece);
    }
    for (std::int64_t k = 1; k < world(); ++k) {
      const std::int64_t to = peer(k);
      const Bytes theirs = piece_bytes(to, piece);
      if (theirs.value() > 0)
        poster.send(at_byte(full_, begin_byte(to) + piece * piece_), theirs, Rank{static_cast<int>(to)},
                    piece);
    }
    return true;
  }

 private:
  [[nodiscard]] void* received(std::int64_t piece, std::int64_t from) const {
    const std::int64_t place = from < me() ? from : from - 1;
    return at_byte(scratch_, (piece % kSumPiecesInFlight * (world() - 1) + place) * kSumPiece);
  }
  void sum(std::int64_t piece) {
    const std::int64_t elements = piece_bytes(me(), piece).value() / element_;
    if (elements == 0) return;
    in_.clear();
    for (std::int64_t r = 0; r < world(); ++r) {
      in_.push_back(r == me() ? at_byte(full_, begin_byte(r) + piece * piece_) : received(piece, r));
    }
    void* const out[] = {at_byte(shard_, piece * piece_)};
    sum_in_rank_order(shape_.dtype, in_, out, elements);
  }

  const void* full_;
  void* shard_;
  void* scratch_;
  std::vector<const void*> in_;
};

class ExchangeSlices : public SlicedExchange {
 public:
  ExchangeSlices(SlicedTensor shape, const void* shard, void* full)
      : SlicedExchange(std::move(shape), kCopyPiece), shard_(shard), full_(full) {}
  std::int64_t in_flight() const override { return 2; }
  bool post(std::int64_t piece, int stage, Poster& poster) override {
    if (stage == 1) return false;
    for (std::int64_t k = 1; k < world(); ++k) {
      const std::int64_t from = peer(world() - k);
      const Bytes theirs = piece_bytes(from, piece);
      if (theirs.value() > 0) poster.receive(place(from, piece), theirs, Rank{static_cast<int>(from)}, piece);
    }
    const Bytes mine = piece_bytes(me(), piece);
    const char* own = at_byte(shard_, piece * piece_);
    for (std::int64_t k = 1; k < world() && mine.value() > 0; ++k)
      poster.send(own, mine, Rank{static_cast<int>(peer(k))}, piece);
    if (own != place(me(), piece) && mine.value() > 0) {
      std::memcpy(place(me(), piece), own, static_cast<std::size_t>(mine.value()));
    }
    return true;
  }

 private:
  [[nodiscard]] char* place(std::int64_t rank, std::int64_t piece) const {
    return at_byte(full_, begin_byte(rank) + piece * piece_);
  }
  const void* shard_;
  void* full_;
};

class PassAlong : public Exchange {
 public:
  PassAlong(Bytes bytes, void* data, Rank me, Rank root, WorldSize world)
      : bytes_(bytes.value()), data_(data) {
    const std::int64_t n = to_int(world), position = (to_int(me) - to_int(root) + n) % n;
    first_ = position == 0;
    last_ = position == n - 1;
    before_ = Rank{static_cast<int>((to_int(me) + n - 1) % n)};
    after_ = Rank{static_cast<int>((to_int(me) + 1) % n)};
  }
  std::int64_t pieces() const override { return first_ && last_ ? 0 : ceil_div(bytes_, kCopyPiece); }
  std::int64_t in_flight() const override { return 2; }
  bool post(std::int64_t piece, int stage, Poster& poster) override {
    char* data = at_byte(data_, piece * kCopyPiece);
    const Bytes bytes(std::min(kCopyPiece, bytes_ - piece * kCopyPiece));
    if (stage == 0 && !first_) poster.receive(data, bytes, before_, piece);
    if (stage == 1 && !last_) poster.send(data, bytes, after_, piece);
    return stage < 2;
  }

 private:
  std::int64_t bytes_;
  void* data_;
  bool first_, last_;
  Rank before_, after_;
};

/// One direction of a message. All its pieces are posted at once: a later message to the same rank must not
/// overtake.
class MessageExchange : public Exchange {
 public:
  /// `from` or `to` is null: of an empty message both, so `sending` says which it is.
  MessageExchange(bool sending, Bytes bytes, const void* from, void* to, Rank peer)
      : sending_(sending), bytes_(bytes.value()), from_(from), to_(to), peer_(peer) {}
  std::int64_t pieces() const override { return std::max<std::int64_t>(1, ceil_div(bytes_, kMessagePiece)); }
  std::int64_t in_flight() const override { return pieces(); }
  bool post(std::int64_t piece, int stage, Poster& poster) override {
    if (stage == 1) return false;
    const std::int64_t begin = piece * kMessagePiece;
    const Bytes bytes(std::min(kMessagePiece, bytes_ - begin));
    // One tag for all messages: within a directed pair MPI matches them in the order in which they were
    // posted.
    sending_ ? poster.send(at_byte(from_, begin), bytes, peer_, 0)
             : poster.receive(at_byte(to_, begin), bytes, peer_, 0);
    return true;
  }

 private:
  bool sending_;
  std::int64_t bytes_;
  const void* from_;
  void* to_;
  Rank peer_;
};

class Meet : public Exchange {
 public:
  std::int64_t pieces() const override { return 1; }
  std::int64_t in_flight() const override { return 1; }
  bool post(std::int64_t, int stage, Poster& poster) override {
    if (stage == 0) poster.barrier();
    return stage == 0;
  }
};

}  // namespace

SlicedTensor equal_slices(const Operation& op, Rank me, WorldSize world) {
  const std::int64_t n = op.elements.value() / to_int(world);
  SlicedTensor shape{op.dtype, {}, me};
  for (std::int64_t r = 0; r < to_int(world); ++r) shape.slices.push_back({r * n, (r + 1) * n});
  return shape;
}

SlicedTensor ragged_slices(const Operation& op, Rank me, WorldSize world) {
  SlicedTensor shape{op.dtype, {}, me};
  for (int r = 0; r < to_int(world); ++r) shape.slices.push_back(slice_of(op.elements, Rank{r}, world));
  return shape;
}

std::unique_ptr<Exchange> exchange_and_sum(SlicedTensor shape, const void* full, void* shard, void* scratch) {
  return std::make_unique<ExchangeAndSum>(std::move(shape), full, shard, scratch);
}

std::unique_ptr<Exchange> exchange_slices(SlicedTensor shape, const void* shard, void* full) {
  return std::make_unique<ExchangeSlices>(std::move(shape), shard, full);
}

std::unique_ptr<Exchange> pass_along(Bytes bytes, void* data, Rank me, Rank root, WorldSize world) {
  return std::make_unique<PassAlong>(bytes, data, me, root, world);
}

std::unique_ptr<Exchange> send_message(Bytes bytes, const void* data, Rank to) {
  return std::make_unique<MessageExchange>(true, bytes, data, nullptr, to);
}

std::unique_ptr<Exchange> receive_message(Bytes bytes, void* data, Rank from) {
  return std::make_unique<MessageExchange>(false, bytes, nullptr, data, from);
}

std::unique_ptr<Exchange> meet() { return std::make_unique<Meet>(); }

}  // namespace sc
