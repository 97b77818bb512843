#include "params_on_disk.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "common/memory/ledger.h"

namespace sc {

void ParamsOnDisk::expect(const std::vector<std::size_t>& pieces) {
  if (!expected_.empty() || !arriving_.empty())
    throw std::logic_error("parameters were expected and never brought");
  expected_.assign(pieces.begin(), pieces.end());
}

// [anchor: parameters-from-the-disk]
// The read of an expected piece has begun ahead. It is waited for when the reads of the next ones have begun.
at::Tensor ParamsOnDisk::bring(std::size_t piece, std::int64_t version) {
  if (arriving_.empty()) {
    if (!expected_.empty() && expected_.front() != piece)
      throw std::logic_error("another piece's parameters were expected");
    start_reading(piece, version);
  }
  if (arriving_.front().piece != piece) throw std::logic_error("another piece's parameters were expected");
  read_ahead(version);
  arriving_.front().read.wait();
  sending_ = arriving_.front().buffer;
  arriving_.pop_front();
  return its_.in[sending_].narrow(0, 0, its_.window.sizes[piece]);
}

void ParamsOnDisk::sent(OpEnd end) { sent_[sending_] = std::move(end); }

// Reads as far ahead as there are buffers, and parameters that are on the disk already. A piece that forward
// and backward both need is in the list twice: its second read waits for the first one's end.
void ParamsOnDisk::read_ahead(std::int64_t version) {
  while (!expected_.empty() && arriving_.size() < its_.in.size() && sent_[next_in_].passed()) {
    const std::size_t next = expected_.front();
    if (std::ranges::any_of(arriving_, [&](Arriving& a) { return a.piece == next && !a.read.ready(); }))
      return;
    const Stored there = stored(next, version);
    if (there.version != version || !there.end.passed()) return;
    start_reading(next, version);
  }
}

void ParamsOnDisk::start_reading(std::size_t piece, std::int64_t version) {
  if (!expected_.empty()) expected_.pop_front();
  const Stored there = stored(piece, version);
  if (there.version != version) throw std::logic_error("that version of the parameters is not on the disk");
  there.end.wait();
  const std::size_t buffer = std::exchange(next_in_, (next_in_ + 1) % its_.in.size());
  sent_[buffer].wait();
  arriving_.push_back({piece, buffer,
                       its_.file.of_this_step().read(extent_of(piece, version), bytes(its_.in[buffer], piece),
                                                     {OpPurpose::parameters, its_.window.units[piece]})});
}

ParamsOnDisk::ParamsOnDisk(Setting setting)
    : its_(std::move(setting)),
      stored_(its_.window.sizes.size() * static_cast<std::size_t>(its_.versions)),
      out_(its_.out.size()),
      sent_(its_.in.size()) {}

std::size_t ParamsOnDisk::extent_of(std::size_t piece, std::int64_t version) const {
  return its_.first_extent + static_cast<std::size_t>(version % its_.versions) * its_.window.sizes.size() +
         piece;
}

std::span<std::byte> ParamsOnDisk::bytes(const at::Tensor& buffer, std::size_t piece) const {
  return {static_cast<std::byte*>(buffer.mutable_data_ptr()),
          static_cast<std::size_t>(its_.file.uncounted().extent_bytes(extent_of(piece, 0)).value())};
}

at::Tensor ParamsOnDisk::destination(std::size_t piece, std::int64_t version) {
  return its_.out[its_.window.buffer_of(piece, version)].narrow(0, 0, its_.window.sizes[piece]);
}

// Every extent is written once before the run begins, so that a disk that is too small ends the run there.
void ParamsOnDisk::keep_first_values(std::size_t piece, const at::Tensor& master) {
  destination(piece, 0).copy_(master);
  const at::Tensor& buffer = its_.out[its_.window.buffer_of(piece, 0)];
  for (std::int64_t version = 0; version < its_.versions; ++version)
    its_.file.uncounted().write(extent_of(piece, version), bytes(buffer, piece)).wait();
}

void ParamsOnDisk::written(std::size_t piece, std::int64_t version,
                           const std::shared_ptr<const HostPiece>& work) {
  if (work) work->wait();
  // The version that is overwritten may still be on its way to the disk, and has to arrive first.
  stored(piece, version - its_.versions).end.wait();
  const std::size_t extent = extent_of(piece, version), buffer = its_.window.buffer_of(piece, version);
  out_[buffer] = its_.file.write(extent, bytes(its_.out[buffer], piece),
                                 {OpPurpose::parameters, its_.window.units[piece]}, version - 1);
  const std::lock_guard lock(mutex_);
  stored_[extent - its_.first_extent] = {version, out_[buffer]};
}

bool ParamsOnDisk::left(Number number, const HostOptimizer& /*host*/) const {
  const OpEnd& written = out_[its_.window.buffer_of(number)];
  if (!written.passed()) return false;
  // The write has ended: wait() throws what it failed with.
  written.wait();
  return true;
}

ParamsOnDisk::Stored ParamsOnDisk::stored(std::size_t piece, std::int64_t version) const {
  const std::lock_guard lock(mutex_);
  return stored_[extent_of(piece, version + its_.versions) - its_.first_extent];
}

/// A checkpoint's access to one piece's parameters, which pass through the first buffer of `out`.
class ParamsOfExtent final : public StateValues {
 public:
  ParamsOfExtent(ParamsOnDisk& owner, std::size_t piece, std::int64_t version)
      : owner_(owner), piece_(piece), version_(version) {}
  [[nodiscard]] DType dtype() const override { return from_aten(owner_.its_.out.front().scalar_type()); }
  void read(Range part, at::Tensor& into) const override { into.copy_(of_extent(part)); }
  void write(Range part, const at::Tensor& from) override {
    of_extent(part).copy_(from);
    owner_.its_.file.uncounted()
        .write(owner_.extent_of(piece_, version_), owner_.bytes(owner_.its_.out.front(), piece_))
        .wait();
  }

 private:
  [[nodiscard]] at::Tensor of_extent(Range part) const {
    const at::Tensor& buffer = owner_.its_.out.front();
    owner_.stored(piece_, version_).end.wait();
    owner_.its_.file.uncounted()
        .read(owner_.extent_of(piece_, version_), owner_.bytes(buffer, piece_))
        .wait();
    return buffer.narrow(0, part.begin, part.size());
  }
  ParamsOnDisk& owner_;
  const std::size_t piece_;
  const std::int64_t version_;
};

std::shared_ptr<StateValues> ParamsOnDisk::values(std::size_t piece, std::int64_t version) {
  return std::make_shared<ParamsOfExtent>(*this, piece, version);
}

}  // namespace sc
