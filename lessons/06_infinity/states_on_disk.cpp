// StatesOnDisk between steps, when checkpoints and evaluations read states and a resumed run writes them. How
// updates pass through the window is in infinity.cpp.
#include "states_on_disk.h"

#include <stdexcept>

namespace sc {

StatesOnDisk::StatesOnDisk(const Window& window, StateFile& file, const ParamHome& params)
    : window_(window),
      file_(file),
      params_(params),
      read_(window.states.size()),
      written_(window.states.size()) {}

PieceStates StatesOnDisk::vectors(std::size_t buffer, std::size_t piece) const {
  const at::Tensor& states = window_.states[buffer];
  const std::int64_t n = window_.sizes[piece];
  return {states.narrow(0, 0, n), states.narrow(0, n, n), states.narrow(0, 2 * n, n)};
}

std::span<std::byte> StatesOnDisk::bytes(std::size_t buffer, std::size_t piece) const {
  return {static_cast<std::byte*>(window_.states[buffer].mutable_data_ptr()),
          static_cast<std::size_t>(file_.uncounted().extent_bytes(piece).value())};
}

at::Tensor StatesOnDisk::first_master(std::size_t piece) {
  const std::size_t buffer = window_.buffer_of(piece, 0);
  written_[buffer].wait();
  window_.states[buffer].zero_();
  return vectors(buffer, piece).master;
}

void StatesOnDisk::write_first(std::size_t piece) {
  const std::size_t buffer = window_.buffer_of(piece, 0);
  DiskTransfer write = file_.uncounted().write(piece, bytes(buffer, piece));
  written_[buffer] = {[write] { return write.done(); }, [write]() mutable { write.wait(); }};
}

void StatesOnDisk::wait_first() {
  for (const OpEnd& write : written_) write.wait();
}

/// A checkpoint's access to one of the three vectors of a piece's extent.
class VectorOnDisk final : public StateValues {
 public:
  VectorOnDisk(StatesOnDisk& owner, const HostOptimizer& host, std::size_t piece, int vector,
               std::shared_ptr<StateValues> also)
      : owner_(owner), host_(host), piece_(piece), vector_(vector), also_(std::move(also)) {}
  [[nodiscard]] DType dtype() const override { return DType::f32; }
  void read(Range part, at::Tensor& into) const override {
    into.copy_(of_extent(owner_.in_first_buffer(host_, piece_), part));
  }
  void write(Range part, const at::Tensor& from) override {
    const at::Tensor extent = owner_.in_first_buffer(host_, piece_);
    if (owner_.next_read_ > 0) throw std::logic_error("states are overwritten before the first step alone");
    of_extent(extent, part).copy_(from);
    owner_.file_.uncounted().write(piece_, owner_.bytes(0, piece_)).wait();
    if (also_) also_->write(part, from);
  }

 private:
  [[nodiscard]] at::Tensor of_extent(const at::Tensor& extent, Range part) const {
    return extent.narrow(0, vector_ * owner_.window_.sizes[piece_] + part.begin, part.size());
  }

  StatesOnDisk& owner_;
  const HostOptimizer& host_;
  const std::size_t piece_;
  const int vector_;
  const std::shared_ptr<StateValues> also_;
};

std::shared_ptr<StateValues> StatesOnDisk::values(const HostOptimizer& host, std::size_t piece, int vector,
                                                  std::shared_ptr<StateValues> also) {
  return std::make_shared<VectorOnDisk>(*this, host, piece, vector, std::move(also));
}

at::Tensor StatesOnDisk::in_first_buffer(const HostOptimizer& host, std::size_t piece) {
  host.settle();
  file_.wait();
  if (borrowed_ != piece) file_.uncounted().read(piece, bytes(0, piece)).wait();
  borrowed_ = piece;
  return window_.states.front();
}

void StatesOnDisk::give_first_buffer_back() {
  if (!borrowed_) return;
  borrowed_.reset();
  for (Number number = next_update_; number < next_read_; ++number)
    if (window_.buffer_of(number) == 0)
      file_.uncounted().read(window_.piece_of(number), bytes(0, window_.piece_of(number))).wait();
}

}  // namespace sc
