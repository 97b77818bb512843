// Every buffer of a rank comes from here, with a purpose. What the plan predicts, the ledger has counted.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>

#include "common/base/types.h"
#include "common/memory/plan.h"

namespace sc {

/// at::ScalarType of a DType and back.
at::ScalarType to_aten(DType dtype);
DType from_aten(at::ScalarType type);

/// At most that many bytes live at once; 0 = no limit.
struct Caps {
  Bytes device{0}, host{0}, disk{0};  // host: pinned memory, too
};

/// Makes memory for so many bytes; null: the ledger is to make it.
using MakeMemory = std::function<std::shared_ptr<void>(Bytes)>;

/// Counts live and peak bytes by purpose and place, and by name. A tensor's bytes are given back when its
/// storage dies, whoever holds it last. Thread-safe (the communicator's thread asks for scratch). One ledger
/// a rank.
class Ledger {
 public:
  explicit Ledger(at::Device device, const Caps& caps = {});
  ~Ledger();
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;

  /// An uninitialised contiguous tensor of `shape`. Beside the device it lies in pages of its own
  /// (host_pages), whose contents are zero.
  ///   Errors  InputError (exit 69) past a cap: purpose, name, bytes asked, live, cap. std::logic_error for
  ///           Place::disk, which has no tensors.
  at::Tensor allocate(Purpose purpose, const std::string& name, at::IntArrayRef shape, DType dtype,
                      Place place = Place::device);
  /// The same, filled with zeros.
  at::Tensor zeros(Purpose purpose, const std::string& name, at::IntArrayRef shape, DType dtype,
                   Place place = Place::device);
  /// The same as a plan has it, flat.  window: makes it where all ranks reach it (Communicator::window).
  at::Tensor zeros(const Buffer& buffer, const MakeMemory& window = {});
  /// Counts bytes that somebody else holds, a file's say, as long as what it returns lives.
  ///   Errors  as allocate.
  [[nodiscard]] std::shared_ptr<void> reserve(Purpose purpose, const std::string& name, Bytes bytes,
                                              Place place);

  /// The same in memory that somebody else made, at least as long (Communicator::window): counted here, and
  /// held as long as the tensor's storage lives.
  at::Tensor adopt(Purpose purpose, const std::string& name, at::IntArrayRef shape, DType dtype,
                   std::shared_ptr<void> memory);

  [[nodiscard]] at::Device device() const;
  [[nodiscard]] Bytes live(Purpose purpose, Place place = Place::device) const;
  [[nodiscard]] Bytes peak(Purpose purpose, Place place = Place::device) const;
  [[nodiscard]] ByPlace<Bytes> peaks() const;
  [[nodiscard]] ByName peaks_by_name() const;
  [[nodiscard]] Bytes live_total(Place place = Place::device) const;
  [[nodiscard]] Bytes peak_total(Place place = Place::device) const;  // of the sum
  [[nodiscard]] Bytes adopted() const;                                // live, of live_total()
  /// Peaks forget what is gone: they start again from what is live.
  void reset_peaks();

  struct State;

 private:
  std::shared_ptr<State> state_;
};

}  // namespace sc
