// Buffers that units take turns in: their names, and how often a step gathers into them. No torch.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/model/param_layout.h"

namespace sc {

/// The number of buffers in which the blocks' whole gradients take turns.
inline constexpr int kGradPool = 2;

/// The index of a unit's buffer: 0 for unit 0, shared by tied embedding and head; 1 for the last unit; blocks
/// take turns in the other `pool` buffers.
inline std::size_t buffer_of(const ParamLayout& layout, int pool, int unit) {
  if (unit == 0) return 0;
  if (unit == layout.last_unit()) return 1;
  return static_cast<std::size_t>(2 + unit % pool);
}

/// For each buffer, the sizes of the largest unit that uses it.
inline std::vector<UnitLayout> sizes_of(const ParamLayout& layout, int pool) {
  std::vector<UnitLayout> sizes(static_cast<std::size_t>(2 + pool));
  for (int unit = 0; unit < layout.num_units(); ++unit) {
    UnitLayout& size = sizes[buffer_of(layout, pool, unit)];
    size.sharded_size = std::max(size.sharded_size, layout.unit(unit).sharded_size);
    size.whole_size = std::max(size.whole_size, layout.unit(unit).whole_size);
  }
  return sizes;
}

/// What a buffer is called in the ledger, e.g. "params_full, a block".
inline std::string name_of_buffer(const char* what, std::size_t buffer) {
  return std::string(what) + (buffer == 0 ? ", unit 0" : buffer == 1 ? ", last unit" : ", a block");
}

/// How often a step of `micro` micro-batches, each with a forward and a backward, gathers a unit's
/// parameters. Blocks take turns in `pool` buffers, block b in buffer b % pool; the first and the last unit
/// have one each.
inline std::int64_t gathers_of(const ParamLayout& layout, int pool, std::int64_t micro, int unit) {
  if (unit == 0 || unit == layout.last_unit()) return 1;
  // Some passes need no gather: forward finds blocks 1 to pool, which backward used last (but not the first
  // forward); backward finds the last blocks.
  const bool in_forward = unit > pool, in_backward = unit <= layout.num_blocks() - pool;
  return 1 + (in_forward ? micro - 1 : 0) + (in_backward ? micro : 0);
}

}  // namespace sc
