// A range of a vector's elements. No torch.
#pragma once

#include <cstdint>

namespace sc {

/// A half-open range of elements [begin, end).
struct Range {
  std::int64_t begin = 0, end = 0;
  [[nodiscard]] std::int64_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

}  // namespace sc
