// Which ranks hold which parts of a strategy's state.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <vector>

#include "common/comm/communicator.h"
#include "common/strategy/state_slice.h"

namespace sc::detail {

/// One vector of a unit, of which a slice holds a part. The vectors of a sharded segment differ between
/// tensor ranks; those of a whole segment are the same.
struct StateKey {
  Purpose purpose;
  std::int64_t version;
  int unit;
  Segment segment;
  int tensor_rank = 0;  // for a sharded segment
  auto operator<=>(const StateKey&) const = default;
};
inline StateKey key_of(const StateSlice& slice, const ParamLayout& layout) {
  return {slice.purpose, slice.version, slice.unit, slice.segment,
          slice.segment == Segment::sharded ? layout.cut().rank : 0};
}

inline Range shared(Range a, Range b) { return {std::max(a.begin, b.begin), std::min(a.end, b.end)}; }

/// Which rank holds which elements, the same on all ranks. Several may hold an element (replicas, a tied
/// matrix on both ends of a pipeline).
class StatePlacement {
 public:
  /// Exchanges which slices ranks have; `layout` is that of the slices. Collective.
  StatePlacement(const std::vector<StateSlice>& slices, const ParamLayout& layout, Communicator& comm);

  /// Whether every rank holds all elements, so that no rank has to send any.
  [[nodiscard]] bool on_all(const StateKey& key, std::int64_t size) const;
  /// The ascending parts of `range` that this rank holds and no lower rank does.
  [[nodiscard]] std::vector<Range> lowest(const StateKey& key, Range range) const;
  /// The ascending parts of `range` that fall to this rank when all holders of an element divide equal
  /// elements evenly, the first holder getting the first part. Over all ranks each element appears once.
  [[nodiscard]] std::vector<Range> even_share(const StateKey& key, Range range) const;

 private:
  [[nodiscard]] const std::vector<Range>& of(std::size_t rank, const StateKey& key) const;
  std::size_t rank_;
  std::vector<std::map<StateKey, std::vector<Range>>> held_;  // by rank
};

}  // namespace sc::detail
