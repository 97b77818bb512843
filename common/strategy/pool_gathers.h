// How often a step gathers what is not kept. No torch.
#pragma once

#include <cstdint>

#include "common/model/param_layout.h"

namespace sc {

/// Of a unit's parameters, where blocks take turns in `pool` buffers, block b in buffer b % pool; the first
/// and the last unit have one each. micro: batches of a step, each with a forward and a backward.
inline std::int64_t gathers_of(const ParamLayout& layout, int pool, std::int64_t micro, int unit) {
  if (unit == 0 || unit == layout.last_unit()) return 1;
  // Forward finds blocks 1 to pool, which backward used last; backward the last ones; the first forward none.
  const bool in_forward = unit > pool, in_backward = unit <= layout.num_blocks() - pool;
  return 1 + (in_forward ? micro - 1 : 0) + (in_backward ? micro : 0);
}

}  // namespace sc
