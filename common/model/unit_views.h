// Units' vectors as consecutive views of one arena.
#pragma once

#include <vector>

#include "common/model/gpt.h"

namespace sc {

/// sharded: [layout.arena_size(Segment::sharded)]; whole likewise; undefined where all units' segments of
/// that kind are empty.
inline std::vector<UnitTensors> unit_views(const ParamLayout& layout, const at::Tensor& sharded,
                                           const at::Tensor& whole = {}) {
  std::vector<UnitTensors> units;
  for (int unit = 0; unit < layout.num_units(); ++unit) {
    const UnitLayout& u = layout.unit(unit);
    units.push_back({sharded.defined() ? sharded.narrow(0, u.sharded_begin, u.sharded_size) : at::Tensor(),
                     whole.defined() ? whole.narrow(0, u.whole_begin, u.whole_size) : at::Tensor()});
  }
  return units;
}

}  // namespace sc
