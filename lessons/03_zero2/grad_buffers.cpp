#include "grad_buffers.h"

#include <algorithm>

namespace sc {

std::size_t grad_buffer_of(const ParamLayout& layout, int unit) {
  if (unit == 0) return kUnit0;
  if (unit == layout.last_unit()) return kLastUnit;
  return unit % 2 == 0 ? kEvenBlocks : kOddBlocks;
}

std::array<std::int64_t, kGradBuffers> grad_buffer_sizes(const ParamLayout& layout) {
  std::array<std::int64_t, kGradBuffers> sizes{};
  for (int unit = 0; unit < layout.num_units(); ++unit) {
    std::int64_t& size = sizes[grad_buffer_of(layout, unit)];
    size = std::max(size, layout.unit(unit).sharded_size);
  }
  return sizes;
}

}  // namespace sc
