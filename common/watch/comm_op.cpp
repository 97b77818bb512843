#include "common/watch/comm_op.h"

#include "common/base/text.h"

namespace sc {

void CommPlan::add(CommKind kind, DType dtype, Elements elements, WorldSize ranks, std::int64_t times) {
  if (elements.value() > 0 && times > 0) count[{kind, dtype, elements, ranks}] += times;
}

bool RankSet::contains(Rank rank) const {
  const std::int64_t place = to_int(rank) - first;
  return place >= 0 && place % stride == 0 && place / stride < count;
}

RankSet RankSet::of(const std::vector<Rank>& members) {
  RankSet set{static_cast<int>(to_int(members[0])), static_cast<int>(members.size()), 1};
  if (members.size() > 1) set.stride = static_cast<int>(to_int(members[1]) - to_int(members[0]));
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (set.stride < 1 || to_int(members[i]) != set.first + static_cast<std::int64_t>(i) * set.stride)
      return {};
  }
  return set;
}

Bytes wire_bytes(const CommOp& op, Rank rank) {
  const std::int64_t others = to_int(op.ranks) - 1;
  if (others == 0) return Bytes(0);
  switch (op.kind) {
    case CommKind::all_reduce: {
      const std::int64_t own = slice_of(op.elements, rank, op.ranks).size();
      return bytes_of(Elements(op.elements.value() - own + others * own), op.dtype);
    }
    case CommKind::reduce_scatter:
    case CommKind::all_gather:
      return bytes_of(op.elements / to_int(op.ranks) * others, op.dtype);
    case CommKind::broadcast:
    case CommKind::send:
      return bytes_of(op.elements, op.dtype);
    case CommKind::recv:
    case CommKind::barrier:
    case CommKind::to_host:
    case CommKind::to_device:
    case CommKind::disk_read:
    case CommKind::disk_write:
      return Bytes(0);
  }
  return Bytes(0);
}

Bytes wire_bytes(const CommOp& op) { return wire_bytes(op, Rank{0}); }

Bytes moved_bytes(const CommPlan& plan, Way way, Rank rank) {
  Bytes sum;
  for (const auto& [op, times] : plan.count) {
    if (way_of(op.kind) != way) continue;
    const Rank in_group{static_cast<int>(to_int(rank) % to_int(op.ranks))};
    sum += (way == Way::wire ? wire_bytes(op, in_group) : bytes_of(op.elements, op.dtype)) * times;
  }
  return sum;
}

std::string describe(const CommOp& op) {
  if (op.kind == CommKind::barrier) return "barrier";
  return std::string(name_of(op.kind)) + " of " + human_count(op.elements.value()) + " " +
         std::string(name_of(op.dtype));
}

std::string describe(const CommOp& op, WorldSize world) {
  const bool between_two = op.kind == CommKind::send || op.kind == CommKind::recv;
  if (op.ranks == world || between_two || way_of(op.kind) != Way::wire) return describe(op);
  return describe(op) + ", " + std::to_string(to_int(op.ranks)) + " ranks";
}

}  // namespace sc
