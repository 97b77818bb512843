// A strategy's state by the names of the model's tensors: what this rank writes to a checkpoint, and what it
// takes from one, which any strategy on any number of ranks may have written.
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

/// This rank's part of a checkpoint: fp32 weights (the master if there is one), momentum and variance, older
/// versions of rounded parameters, which no master can reproduce, and what is pending or in flight. If
/// several ranks hold an element, each saves a part of such elements, so that every element is saved once.
/// Padding is not saved. Valid until the strategy's next step.
class SavedState {
 public:
  /// Finds out what each rank saves. Collective. The strategy must be quiet.
  SavedState(Strategy& strategy, const ParamLayout& layout, Communicator& comm);

  [[nodiscard]] const std::vector<checkpoint::Entry>& entries() const { return entries_; }
  [[nodiscard]] Bytes bytes() const;
  /// Passes all entries in order to `take`, in pieces of at most kStatePiece elements.
  void read(const std::function<void(std::size_t entry, std::span<const std::byte> piece)>& take) const;
  /// Copies all entries, one after another, to `bytes` [at least bytes(), u8, in host memory]. Each value is
  /// copied once, from a GPU at the rate of its link if `bytes` is pinned.
  void copy(const at::Tensor& bytes) const;

 private:
  // Entries with larger elements come first, so that each is aligned to its own size.
  std::vector<checkpoint::Entry> entries_;
  struct Source {
    std::shared_ptr<StateValues> values;
    Range range;  // elements of the slice's values
  };
  std::vector<Source> sources_;  // by entry
};

/// Overwrites the strategy's state with the checkpoint's. Uses no messages, and memory for one piece.
///   Errors  InputError (exit 65).
void restore_state(Strategy& strategy, const ParamLayout& layout, checkpoint::Reader& from);

}  // namespace sc::detail
