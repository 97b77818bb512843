// The window is memory for the states of a few pieces, which take turns in it.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace sc {

/// Numbers are HostOptimizer's: update u of piece i is number u * pieces + i, and lies in buffer number %
/// buffers.
struct Window {
  /// By piece: its elements, the elements of all pieces before it, and its unit.
  std::vector<std::int64_t> sizes, begins;
  std::vector<int> units;
  /// By buffer: [extent / 4] fp32, aligned to kBlockAlign, with master, momentum and variance one after the
  /// other.
  std::vector<at::Tensor> states;

  [[nodiscard]] std::int64_t pieces() const { return static_cast<std::int64_t>(sizes.size()); }
  [[nodiscard]] std::int64_t buffers() const { return static_cast<std::int64_t>(states.size()); }
  [[nodiscard]] std::size_t piece_of(std::int64_t number) const {
    return static_cast<std::size_t>(number % pieces());
  }
  [[nodiscard]] std::size_t buffer_of(std::int64_t number) const {
    return static_cast<std::size_t>(number % buffers());
  }
  /// The buffer in which this version of a piece is computed. Version 0, the first values, takes version 1's
  /// buffer.
  [[nodiscard]] std::size_t buffer_of(std::size_t piece, std::int64_t version) const {
    return buffer_of(std::max<std::int64_t>(0, version - 1) * pieces() + static_cast<std::int64_t>(piece));
  }
};

}  // namespace sc
