#include "common/strategy/state_placement.h"

#include <algorithm>
#include <set>

#include "common/comm/gather_text.h"

namespace sc::detail {
namespace {

struct PlacedRange {
  StateKey key;
  Range range;
};

}  // namespace

StatePlacement::StatePlacement(const std::vector<StateSlice>& slices, const ParamLayout& layout,
                               Communicator& comm)
    : rank_(static_cast<std::size_t>(to_int(comm.rank()))) {
  std::vector<PlacedRange> mine;
  for (const StateSlice& s : slices) mine.push_back({key_of(s, layout), s.range});
  for (const std::vector<PlacedRange>& of_rank : all_gather_values(comm, mine)) {
    held_.emplace_back();
    for (const PlacedRange& held : of_rank) held_.back()[held.key].push_back(held.range);
  }
}

const std::vector<Range>& StatePlacement::of(std::size_t rank, const StateKey& key) const {
  static const std::vector<Range> kNothing;
  const auto found = held_[rank].find(key);
  return found == held_[rank].end() ? kNothing : found->second;
}

bool StatePlacement::on_all(const StateKey& key, std::int64_t size) const {
  for (std::size_t rank = 0; rank < held_.size(); ++rank) {
    std::int64_t held = 0;
    for (const Range& range : of(rank, key)) held += range.size();
    if (held != size) return false;
  }
  return true;
}

namespace {

std::vector<Range> without(const std::vector<Range>& parts, Range taken) {
  std::vector<Range> left;
  for (const Range& part : parts) {
    if (part.begin < taken.begin) left.push_back({part.begin, std::min(part.end, taken.begin)});
    if (taken.end < part.end) left.push_back({std::max(part.begin, taken.end), part.end});
  }
  return left;
}

}  // namespace

std::vector<Range> StatePlacement::lowest(const StateKey& key, Range range) const {
  std::vector<Range> parts = {range};
  for (std::size_t rank = 0; rank < rank_; ++rank)
    for (const Range& held : of(rank, key)) parts = without(parts, held);
  return parts;
}

// [anchor: an-even-share]
std::vector<Range> StatePlacement::even_share(const StateKey& key, Range range) const {
  std::set<std::int64_t> borders = {range.begin, range.end};  // between two borders the holders are the same
  for (std::size_t rank = 0; rank < held_.size(); ++rank) {
    for (const Range& held : of(rank, key)) {
      for (const std::int64_t border : {held.begin, held.end})
        if (range.begin < border && border < range.end) borders.insert(border);
    }
  }
  std::vector<Range> mine;
  for (auto border = borders.begin(); std::next(border) != borders.end(); ++border) {
    const Range all{*border, *std::next(border)};
    std::int64_t holders = 0, before = 0;
    for (std::size_t rank = 0; rank < held_.size(); ++rank) {
      if (!std::ranges::any_of(of(rank, key),
                               [&](Range h) { return h.begin <= all.begin && all.end <= h.end; }))
        continue;
      ++holders;
      before += rank < rank_ ? 1 : 0;
    }
    const Range part{all.begin + all.size() * before / holders,
                     all.begin + all.size() * (before + 1) / holders};
    if (part.size() > 0) mine.push_back(part);
  }
  return mine;
}

}  // namespace sc::detail
