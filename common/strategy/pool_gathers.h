// Buffers that units take turns in: what they are called, and how often a step gathers into them. No torch.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/model/param_layout.h"

namespace sc {

/// Blocks' gradients, while they are whole, take turns in so many buffers.
inline constexpr int kGradPool = 2;

/// The buffer that a unit has: 0 is unit 0's, which tied embedding and head share, 1 the last unit's, and
/// blocks take turns in the other `pool` of them.
inline std::size_t buffer_of(const ParamLayout& layout, int pool, int unit) {
  if (unit == 0) return 0;
  if (unit == layout.last_unit()) return 1;
  return static_cast<std::size_t>(2 + unit % pool);
}

/// Of each buffer the elements of the largest unit that has it.
inline std::vector<UnitLayout> sizes_of(const ParamLayout& layout, int pool) {
  std::vector<UnitLayout> sizes(static_cast<std::size_t>(2 + pool));
  for (int unit = 0; unit < layout.num_units(); ++unit) {
    UnitLayout& size = sizes[buffer_of(layout, pool, unit)];
    size.sharded_size = std::max(size.sharded_size, layout.unit(unit).sharded_size);
    size.whole_size = std::max(size.whole_size, layout.unit(unit).whole_size);
  }
  return sizes;
}

/// "params_full, a block".
inline std::string name_of_buffer(const char* what, std::size_t buffer) {
  return std::string(what) + (buffer == 0 ? ", unit 0" : buffer == 1 ? ", last unit" : ", a block");
}

/// Of a unit's parameters, where blocks take turns in `pool` buffers, block b in buffer b % pool; the first
/// and the last unit have one each. micro: batches of a step, each with a forward and a backward.
inline std::int64_t gathers_of(const ParamLayout& layout, int pool, std::int64_t micro, int unit) {
  if (unit == 0 || unit == layout.last_unit()) return 1;
  // Forward finds blocks 1 to pool, which backward used last; backward the last ones; the first forward none.
  const bool in_forward = unit > pool, in_backward = unit <= layout.num_blocks() - pool;
  return 1 + (in_forward ? micro - 1 : 0) + (in_backward ? micro : 0);
}

}  // namespace sc
