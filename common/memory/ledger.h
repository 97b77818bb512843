// Every buffer of a rank is allocated here under a purpose; its counts are compared with the memory plan.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>

#include "common/base/types.h"
#include "common/memory/plan.h"

namespace sc {

at::ScalarType to_aten(DType dtype);
DType from_aten(at::ScalarType type);

/// The most bytes that one rank may hold at once at each place; 0 means no limit.
struct Caps {
  Bytes device{0}, host{0}, disk{0};  // host includes pinned memory
};

/// A function that allocates so many bytes outside the ledger; an empty one means that the ledger allocates.
using MakeMemory = std::function<std::shared_ptr<void>(Bytes)>;

/// Counts one rank's live and peak bytes by purpose and place, and by name. A tensor's bytes are given back
/// when its storage dies, whoever holds it last. Thread-safe, because the communicator's thread allocates
/// scratch.
class Ledger {
 public:
  explicit Ledger(at::Device device, const Caps& caps = {});
  ~Ledger();
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;

  // [anchor: every-buffer-named]
  /// An uninitialised contiguous tensor; off the device zeros, in pages of its own (host_pages).
  ///   Errors  InputError (exit 69) past a cap, with purpose, name, bytes asked for, live bytes and the cap.
  ///           std::logic_error for Place::disk, where there are no tensors.
  at::Tensor allocate(Purpose purpose, const std::string& name, at::IntArrayRef shape, DType dtype,
                      Place place = Place::device);
  at::Tensor zeros(Purpose purpose, const std::string& name, at::IntArrayRef shape, DType dtype,
                   Place place = Place::device);
  /// A planned buffer as a flat tensor of zeros. `window` allocates memory that all ranks reach
  /// (Communicator::window).
  at::Tensor zeros(const Buffer& buffer, const MakeMemory& window = {});
  /// Counts the bytes of something else than a tensor, for example a file, until the returned pointer dies.
  ///   Errors  those of allocate().
  [[nodiscard]] std::shared_ptr<void> reserve(Purpose purpose, const std::string& name, Bytes bytes,
                                              Place place);

  /// A tensor in memory from elsewhere (Communicator::window), counted here; its storage keeps `memory`
  /// alive.
  at::Tensor adopt(Purpose purpose, const std::string& name, at::IntArrayRef shape, DType dtype,
                   std::shared_ptr<void> memory);

  [[nodiscard]] at::Device device() const;
  [[nodiscard]] Bytes live(Purpose purpose, Place place = Place::device) const;
  [[nodiscard]] Bytes peak(Purpose purpose, Place place = Place::device) const;
  [[nodiscard]] ByPlace<Bytes> peaks() const;
  [[nodiscard]] ByName peaks_by_name() const;
  [[nodiscard]] Bytes live_total(Place place = Place::device) const;
  [[nodiscard]] Bytes peak_total(Place place = Place::device) const;  // peak of the sum over purposes
  [[nodiscard]] Bytes adopted() const;                                // the live bytes that came from adopt()
  /// Sets every peak to what is live now.
  void reset_peaks();

  struct State;

 private:
  std::shared_ptr<State> state_;
};

}  // namespace sc
