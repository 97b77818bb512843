// Every buffer of a rank comes from here, with a purpose. What the plan predicts, the ledger has counted.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>

#include "common/base/types.h"
#include "common/memory/purpose.h"

namespace sc {

/// at::ScalarType of a DType and back.
at::ScalarType to_aten(DType dtype);
DType from_aten(at::ScalarType type);

/// Counts live and peak bytes by purpose. A tensor's bytes are given back when its storage dies, whoever
/// holds it last. Thread-safe (the communicator's thread asks for scratch). One ledger a rank.
class Ledger {
 public:
  /// `cap`: at most that many bytes live at once (host and disk aside); 0 = no limit.
  explicit Ledger(at::Device device, Bytes cap = Bytes(0));
  ~Ledger();
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;

  /// An uninitialised contiguous tensor of `shape`.  Errors: InputError (exit 69) past the cap: purpose,
  /// name, bytes asked, live, cap. Purpose::host on a GPU rank is pinned host memory.
  at::Tensor allocate(Purpose purpose, const std::string& name, at::IntArrayRef shape, DType dtype);
  /// The same, filled with zeros.
  at::Tensor zeros(Purpose purpose, const std::string& name, at::IntArrayRef shape, DType dtype);

  /// The same in memory that somebody else made, at least as long (Communicator::window): counted here, and
  /// held as long as the tensor's storage lives.
  at::Tensor adopt(Purpose purpose, const std::string& name, at::IntArrayRef shape, DType dtype,
                   std::shared_ptr<void> memory);

  [[nodiscard]] at::Device device() const;
  [[nodiscard]] Bytes live(Purpose purpose) const;
  [[nodiscard]] Bytes peak(Purpose purpose) const;
  [[nodiscard]] Bytes live_total() const;  // host and disk aside, like MemoryPlan::total
  [[nodiscard]] Bytes peak_total() const;
  [[nodiscard]] Bytes adopted() const;  // live, of live_total()
  /// Peaks forget what is gone: they start again from what is live.
  void reset_peaks();
  [[nodiscard]] Bytes cap() const;

  struct State;

 private:
  std::shared_ptr<State> state_;
};

}  // namespace sc
