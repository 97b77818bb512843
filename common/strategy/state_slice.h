// A strategy's state between steps, by name and in any place, for saving, loading and searching in pieces.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <memory>

#include "common/base/types.h"
#include "common/memory/purpose.h"
#include "common/model/param_layout.h"

namespace sc {

/// The values of one slice, in a tensor or in a file that stands for memory.
class StateValues {
 public:
  virtual ~StateValues() = default;
  [[nodiscard]] virtual DType dtype() const = 0;
  /// Reads or writes elements [part.begin, part.end), counted from the slice's first. `into` and `from`
  /// [part.size()] may have another dtype and device.
  virtual void read(Range part, at::Tensor& into) const = 0;
  virtual void write(Range part, const at::Tensor& from) = 0;
};

/// A named piece of a strategy's state on this rank. Valid until the strategy's next step.
struct StateSlice {
  // Parameters, master, momentum and variance are what they say; gradients are those summed over ranks,
  // workspace is the last local gradient (of x before `unit`'s first block).
  Purpose purpose;
  int unit;
  Segment segment;
  Range range;  // the elements of the unit's segment that it holds
  std::shared_ptr<StateValues> values;
  Place place = Place::device;
  std::int64_t version = 0;  // 0: the newest; 1: the one before it, ...
  bool pending = false;      // pending work, which later results depend on

  /// Reads elements `part` of the unit's segment, which must lie within `range`.
  void read(Range part, at::Tensor& into) const {
    values->read({part.begin - range.begin, part.end - range.begin}, into);
  }
  void write(Range part, const at::Tensor& from) const {
    values->write({part.begin - range.begin, part.end - range.begin}, from);
  }
  /// A copy of all elements, flat, in host memory and in the slice's dtype. For tests and small slices.
  [[nodiscard]] at::Tensor copy() const;
};

std::shared_ptr<StateValues> in_tensor(const at::Tensor& flat);

/// How many elements are read or written at a time: 16 MiB of fp32.
inline constexpr std::int64_t kStatePiece = std::int64_t{4} << 20;

template <class F>
void for_each_piece(Range range, F&& f) {
  for (std::int64_t begin = range.begin; begin < range.end; begin += kStatePiece)
    f(Range{begin, std::min(begin + kStatePiece, range.end)});
}

}  // namespace sc
