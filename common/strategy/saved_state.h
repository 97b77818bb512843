// A strategy's state by the names of the model's tensors: what this rank writes into a checkpoint, and what
// it takes out of one that any strategy on any number of ranks has written.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "common/comm/communicator.h"
#include "common/storage/checkpoint/manifest.h"
#include "common/storage/checkpoint/reader.h"
#include "common/strategy/strategy.h"

namespace sc::detail {

/// The model's tensors, as a manifest lists them.
std::vector<checkpoint::TensorShape> tensors_of(const ParamLayout& layout);

/// This rank's part: fp32 weights (the master where there is one), momentum and variance, older versions of
/// rounded parameters, which no master tells, and what is put off or in flight. Of an element that several
/// ranks hold one of them saves it; each a part. Padding is not saved. Valid until the strategy's next step.
class SavedState {
 public:
  /// Collective. The strategy is quiet.
  SavedState(Strategy& strategy, const ParamLayout& layout, Communicator& comm);

  [[nodiscard]] const std::vector<checkpoint::Entry>& entries() const { return entries_; }
  [[nodiscard]] Bytes bytes() const;
  /// All entries in turn, in pieces of at most kStatePiece elements.
  void read(const std::function<void(std::size_t entry, std::span<const std::byte> piece)>& take) const;
  /// All entries one behind the other into `bytes` [at least bytes(), u8, in the host's memory]. Each value
  /// is copied once: from a GPU at the rate of its link if `bytes` is pinned.
  void copy(const at::Tensor& bytes) const;

 private:
  std::vector<checkpoint::Entry> entries_;  // those of large elements first: each is aligned to its own
  struct Source {
    std::shared_ptr<StateValues> values;
    Range range;  // of them
  };
  std::vector<Source> sources_;  // by entry
};

/// Overwrites what the strategy holds with what `from` has. Nobody talks to anybody; in memory at a time: a
/// piece.
///   Errors  InputError (exit 65).
void restore_state(Strategy& strategy, const ParamLayout& layout, checkpoint::Reader& from);

}  // namespace sc::detail
