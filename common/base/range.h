// A part of a vector. No torch.
#pragma once

#include <cstdint>

namespace sc {

/// A half-open range of elements.
struct Range {
  std::int64_t begin = 0, end = 0;
  [[nodiscard]] std::int64_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

}  // namespace sc
