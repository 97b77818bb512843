// Where lesson 05's units are while they are whole. No torch.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "common/model/param_layout.h"

namespace sc {

/// Buffers as in lesson 04: of parameters unit 0's, the last unit's and the blocks' pool, or with whole parameters one
/// for every unit; of full gradients unit 0's, the last unit's, and two for the blocks.
inline std::size_t buffer_of(const ParamLayout& layout, int pool, int unit) {
  if (unit == 0) return 0;
  if (unit == layout.last_unit()) return 1;
  return static_cast<std::size_t>(2 + unit % pool);
}
inline constexpr int kGradPool = 2;

/// Elements of the largest unit that uses each buffer.
inline std::vector<std::int64_t> sizes_of(const ParamLayout& layout, int pool) {
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(2 + pool));
  for (int unit = 0; unit < layout.num_units(); ++unit) {
    std::int64_t& size = sizes[buffer_of(layout, pool, unit)];
    size = std::max(size, layout.unit(unit).sharded_size);
  }
  return sizes;
}

}  // namespace sc
