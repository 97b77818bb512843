// Buffers that units take turns in: what they are called, and how often a step gathers into them. No torch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "common/model/param_layout.h"

namespace sc {

/// Buffer 0 is unit 0's, 1 the last unit's, the others are the blocks': "params_full, a block".
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
