#include "common/watch/comm_op.h"

#include "common/base/text.h"

namespace sc {

Bytes wire_bytes(const CommOp& op, WorldSize world, Rank rank) {
  const std::int64_t others = to_int(world) - 1;
  if (others == 0) return Bytes(0);
  switch (op.kind) {
    case CommKind::all_reduce: {
      const std::int64_t own = slice_of(op.elements, rank, world).size();
      return bytes_of(Elements(op.elements.value() - own + others * own), op.dtype);
    }
    case CommKind::reduce_scatter:
    case CommKind::all_gather:
      return bytes_of(op.elements / to_int(world) * others, op.dtype);
    case CommKind::broadcast:
    case CommKind::send:
      return bytes_of(op.elements, op.dtype);
    case CommKind::recv:
    case CommKind::barrier:
      return Bytes(0);
  }
  return Bytes(0);
}

Bytes wire_bytes(const CommOp& op, WorldSize world) { return wire_bytes(op, world, Rank{0}); }

std::string describe(const CommOp& op) {
  if (op.kind == CommKind::barrier) return "barrier";
  return std::string(name_of(op.kind)) + " of " + human_count(op.elements.value()) + " " +
         std::string(name_of(op.dtype));
}

}  // namespace sc
