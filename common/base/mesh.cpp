#include "common/base/mesh.h"

#include <algorithm>
#include <utility>

namespace sc {

bool RankSet::contains(Rank rank) const {
  const std::int64_t place = to_int(rank) - first;
  return place >= 0 && place % stride == 0 && place / stride < count;
}

std::vector<std::int64_t> RankSet::all() const {
  std::vector<std::int64_t> ranks;
  for (std::int64_t i = 0; i < count; ++i) ranks.push_back(first + i * stride);
  return ranks;
}

RankSet RankSet::of(const std::vector<Rank>& members) {
  RankSet set{static_cast<int>(to_int(members[0])), static_cast<int>(members.size()), 1};
  if (members.size() > 1) set.stride = static_cast<int>(to_int(members[1]) - to_int(members[0]));
  for (std::size_t i = 0; i < members.size(); ++i)
    if (set.stride < 1 || to_int(members[i]) != set.first + static_cast<std::int64_t>(i) * set.stride)
      return {};
  return set;
}

Mesh::Mesh(WorldSize world, std::initializer_list<Size> named) : world_(world) {
  sizes_.fill(1);
  for (const Size& size : named) sizes_[static_cast<std::size_t>(size.axis)] = size.ranks;
  sizes_[static_cast<std::size_t>(Axis::data)] = std::max<std::int64_t>(1, to_int(world) / of_a_replica());
}

std::vector<Axis> Mesh::axes() const {
  std::vector<Axis> axes;
  for (const AxisName& of : kAxes)
    if (size(of.axis) > 1) axes.push_back(of.axis);
  return axes;
}

std::int64_t Mesh::of_a_replica() const {
  std::int64_t ranks = 1;
  for (const AxisName& of : kAxes)
    if (of.axis != Axis::data) ranks *= size(of.axis);
  return ranks;
}

std::int64_t Mesh::stride(Axis axis) const {
  std::int64_t stride = 1;
  for (const AxisName& of : kAxes)
    if (of.axis > axis) stride *= size(of.axis);
  return stride;
}

Rank Mesh::moved(Rank rank, Axis axis, std::int64_t to) const {
  return Rank{static_cast<int>(to_int(rank) + (to - at(axis, rank)) * stride(axis))};
}

RankSet Mesh::group(Rank rank, std::initializer_list<Axis> axes) const {
  RankSet set{0, 1, static_cast<int>(stride(std::max(axes)))};
  for (const Axis axis : axes) {
    rank = moved(rank, axis, 0);
    set.count *= static_cast<int>(size(axis));
  }
  set.first = static_cast<int>(to_int(rank));
  return set;
}

std::string Mesh::place(Rank rank, std::initializer_list<Axis> but) const {
  std::string place;
  for (const AxisName& of : kAxes) {
    if (size(of.axis) > 1 && std::ranges::find(but, of.axis) == but.end())
      place += (place.empty() ? "" : ", ") + std::string(of.one) + " " + std::to_string(at(of.axis, rank));
  }
  return place;
}

std::vector<Rank> Mesh::firsts(std::initializer_list<Axis> axes) const {
  std::vector<Rank> firsts = {Rank{0}};
  for (const AxisName& of : kAxes) {
    if (std::ranges::find(axes, of.axis) != axes.end()) continue;
    std::vector<Rank> along;
    for (const Rank first : firsts)
      for (std::int64_t i = 0; i < size(of.axis); ++i) along.push_back(moved(first, of.axis, i));
    firsts = std::move(along);
  }
  return firsts;
}

}  // namespace sc
