#include "common/watch/comm_op.h"

#include <algorithm>

#include "common/base/text.h"

namespace sc {

void CommPlan::add(const Operation& op, std::int64_t times) {
  if (op.elements.value() > 0 && times > 0) count[op] += times;
}

void CommPlan::add(Operation op, const What& what, std::int64_t times) {
  op.purpose = what.purpose, op.unit = what.unit;
  add(op, times);
}

CommPlan CommPlan::without_names() const {
  CommPlan plan;
  for (const auto& [op, times] : count) plan.count[op.without_names()] += times;
  return plan;
}

Bytes wire_bytes(const Operation& op, Rank rank) {
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

Bytes moved_bytes(const CommPlan& plan, Way way, Rank rank) {
  Bytes sum;
  for (const auto& [op, times] : plan.count) {
    if (way_of(op.kind) != way) continue;
    const Rank in_group{static_cast<int>(to_int(rank) / std::max(1, op.stride) % to_int(op.ranks))};
    sum += (way == Way::wire ? wire_bytes(op, in_group) : bytes_of(op.elements, op.dtype)) * times;
  }
  return sum;
}

std::string unit_in_words(int unit, int last_unit) {
  if (last_unit == kNoUnit) return "unit " + std::to_string(unit);
  if (unit == 0) return "the embedding";
  return unit == last_unit ? "the head" : "block " + std::to_string(unit);
}

std::string describe(const Operation& op, int last_unit) {
  if (op.kind == CommKind::barrier) return "barrier";
  const std::string size = human_count(op.elements.value()) + " " + std::string(name_of(op.dtype));
  std::string text = std::string(name_of(op.kind)) + " of ";
  if (op.purpose == OpPurpose::none) return text + size;
  if (op.unit != kNoUnit) text += unit_in_words(op.unit, last_unit) + "'s ";
  std::string purpose(name_of(op.purpose));
  std::replace(purpose.begin(), purpose.end(), '_', ' ');
  return text + purpose + " (" + size + ")";
}

std::string describe(const Operation& op, WorldSize world) {
  const bool between_two = op.kind == CommKind::send || op.kind == CommKind::recv;
  if (op.ranks == world || between_two || way_of(op.kind) != Way::wire) return describe(op);
  const std::string text = describe(op) + ", " + std::to_string(to_int(op.ranks)) + " ranks";
  return op.stride == 1 ? text : text + ", " + std::to_string(op.stride) + " apart";
}

}  // namespace sc
