// The window: memory for the states of a few pieces, which take turns in it.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace sc {

/// Numbers are HostOptimizer's: update u, piece i is number u * pieces + i, in buffer number % buffers.
struct Window {
  std::vector<std::int64_t> sizes, begins;  // by piece: its elements, and those before it
  std::vector<int> units;                   // by piece: the one it is of
  std::vector<at::Tensor>
      states;  // by buffer: [extent / 4] fp32, aligned to kBlockAlign: master, momentum, variance

  [[nodiscard]] std::int64_t pieces() const { return static_cast<std::int64_t>(sizes.size()); }
  [[nodiscard]] std::int64_t buffers() const { return static_cast<std::int64_t>(states.size()); }
  [[nodiscard]] std::size_t piece_of(std::int64_t number) const {
    return static_cast<std::size_t>(number % pieces());
  }
  [[nodiscard]] std::size_t buffer_of(std::int64_t number) const {
    return static_cast<std::size_t>(number % buffers());
  }
  /// The buffer in which this version of a piece is computed; version 0 is made in the beginning.
  [[nodiscard]] std::size_t buffer_of(std::size_t piece, std::int64_t version) const {
    return buffer_of(std::max<std::int64_t>(0, version - 1) * pieces() + static_cast<std::int64_t>(piece));
  }
};

}  // namespace sc
