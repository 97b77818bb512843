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

/// Of an arena [layout.arena_size()] that has all sharded segments in front, and all whole ones behind them.
inline at::Tensor whole_segments(const ParamLayout& layout, const at::Tensor& arena) {
  const std::int64_t sharded = layout.arena_size(Segment::sharded).value();
  return arena.narrow(0, sharded, arena.numel() - sharded);
}
inline std::vector<UnitTensors> unit_views_of_both(const ParamLayout& layout, const at::Tensor& arena) {
  const at::Tensor whole = whole_segments(layout, arena);
  return unit_views(layout, arena.narrow(0, 0, layout.arena_size(Segment::sharded).value()),
                    whole.numel() > 0 ? whole : at::Tensor());
}

/// Of units first ... last alone, whose sharded segments lie one behind the other in `sharded`; the others'
/// are undefined.
inline std::vector<UnitTensors> unit_views(const ParamLayout& layout, int first, int last,
                                           const at::Tensor& sharded) {
  std::vector<UnitTensors> units(static_cast<std::size_t>(layout.num_units()));
  const std::int64_t begin = layout.unit(first).sharded_begin;
  for (int unit = first; unit <= last; ++unit) {
    const UnitLayout& u = layout.unit(unit);
    units[static_cast<std::size_t>(unit)].sharded =
        sharded.narrow(0, u.sharded_begin - begin, u.sharded_size);
  }
  return units;
}

}  // namespace sc
