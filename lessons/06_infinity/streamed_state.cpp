// Of StreamedUpdate: its states between steps, which checkpoints and evaluations read and a resumed run writes. They pass
// through the window's first buffer; what had been read ahead into that is read again.
#include <algorithm>
#include <stdexcept>

#include "streamed_update.h"

namespace sc {
namespace {

std::span<std::byte> bytes_of(const at::Tensor& extent) {
  return {static_cast<std::byte*>(extent.mutable_data_ptr()), static_cast<std::size_t>(extent.nbytes())};
}

}  // namespace

/// One of the three vectors of a piece's extent.
class StatesOnDisk final : public StateValues {
 public:
  /// also: a copy of the same values elsewhere, or null.
  StatesOnDisk(StreamedUpdate& owner, std::size_t piece, int vector, std::shared_ptr<StateValues> also)
      : owner_(owner), piece_(piece), vector_(vector), also_(std::move(also)) {}
  [[nodiscard]] DType dtype() const override { return DType::f32; }
  void read(Range part, at::Tensor& into) const override {
    into.copy_(of_extent(owner_.in_first_buffer(piece_), part));
  }
  void write(Range part, const at::Tensor& from) override {
    if (owner_.next_read_ > 0) throw std::logic_error("states are overwritten before the first step alone");
    const at::Tensor extent = owner_.in_first_buffer(piece_);
    of_extent(extent, part).copy_(from);
    owner_.file_->blocks.write(piece_, bytes_of(extent)).wait();
    if (also_) also_->write(part, from);
  }

 private:
  [[nodiscard]] at::Tensor of_extent(const at::Tensor& extent, Range part) const {
    const std::int64_t n = owner_.pieces_[piece_].range.size();
    return extent.narrow(0, vector_ * n + part.begin, part.size());
  }

  StreamedUpdate& owner_;
  const std::size_t piece_;
  const int vector_;
  const std::shared_ptr<StateValues> also_;
};

// Between steps: that piece's states.
at::Tensor StreamedUpdate::in_first_buffer(std::size_t piece) {
  settle();
  const at::Tensor extent =
      window_.states.front().narrow(0, 0, file_->blocks.extent_bytes(piece).value() / 4);
  if (borrowed_ != piece) file_->blocks.read(piece, bytes_of(extent)).wait();
  borrowed_ = piece;
  return extent;
}

// What had been read ahead into that buffer is read again.
void StreamedUpdate::give_first_buffer_back() {
  if (!borrowed_) return;
  borrowed_.reset();
  const auto buffers = static_cast<std::int64_t>(window_.states.size()),
             pieces = static_cast<std::int64_t>(pieces_.size());
  for (std::int64_t number = done_ * pieces; number < next_read_; ++number)
    if (number % buffers == 0) file_->blocks.read(piece_of(number), bytes(number)).wait();
}

// The host does nothing any more, or nothing until the next step, and nothing is in flight.
void StreamedUpdate::settle() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return error_ || idle_ || put_off_; });
  if (error_) std::rethrow_exception(error_);
  for (Transfers& transfers : kept_)
    for (Ticket& ticket : transfers.tickets) ticket.end().wait();
}

std::vector<StateSlice> StreamedUpdate::state(int turn) {
  std::vector<StateSlice> state;
  if (home_) settle();
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    const Piece& p = pieces_[i];
    const auto add = [&](Purpose purpose, std::shared_ptr<StateValues> values, Place place) {
      state.push_back({purpose, p.unit, Segment::sharded, p.range, std::move(values), place});
    };
    const auto on_disk = [&](int vector, std::shared_ptr<StateValues> also = {}) {
      return std::make_shared<StatesOnDisk>(*this, i, vector, std::move(also));
    };
    const std::shared_ptr<StateValues> params =
        home_ ? home_->values(i, done_) : in_tensor(p.params.defined() ? p.params : p.on_device);
    if (params->dtype() == DType::f32) {
      add(Purpose::parameters, on_disk(0, params), Place::disk);
    } else {
      add(Purpose::parameters, params,
          home_                ? home_->place()
          : p.params.defined() ? Place::pinned
                               : Place::device);
      add(Purpose::master, on_disk(0), Place::disk);
    }
    add(Purpose::momentum, on_disk(1), Place::disk);
    add(Purpose::variance, on_disk(2), Place::disk);
    const bool on_host = window_.grads.empty();
    add(Purpose::gradients, in_tensor(on_host ? p.grads[turn] : p.grads_on_device),
        on_host ? Place::pinned : Place::device);
  }
  return state;
}

}  // namespace sc
