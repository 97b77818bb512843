// Units' vectors as consecutive views of one arena.
#pragma once

#include <vector>

#include "common/model/gpt.h"

namespace sc {

/// The vectors of all units. `sharded` is [layout.arena_size(Segment::sharded)], `whole` likewise; each is
/// undefined if all units' segments of that kind are empty.
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

/// The whole segments in an arena [layout.arena_size()], where they follow all sharded segments.
inline at::Tensor whole_segments(const ParamLayout& layout, const at::Tensor& arena) {
  const std::int64_t sharded = layout.arena_size(Segment::sharded).value();
  return arena.narrow(0, sharded, arena.numel() - sharded);
}
inline std::vector<UnitTensors> unit_views_of_both(const ParamLayout& layout, const at::Tensor& arena) {
  const at::Tensor whole = whole_segments(layout, arena);
  return unit_views(layout, arena.narrow(0, 0, layout.arena_size(Segment::sharded).value()),
                    whole.numel() > 0 ? whole : at::Tensor());
}

/// The vectors of units first ... last, consecutive in `sharded`, by unit; the others are undefined.
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
