#include "common/comm/op_check.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "common/base/check.h"
#include "common/base/text.h"

namespace sc {
namespace {

[[noreturn]] void refuse(Member me, CommKind kind, const std::string& what) {
  throw InputError(ExitCode::usage,
                   "rank " + std::to_string(to_int(me.rank)) + ": " + std::string(name_of(kind)), what, "");
}

void check_peer(Member me, CommKind kind, Rank peer) {
  const std::int64_t p = to_int(peer);
  if (p < 0 || p >= to_int(me.world)) {
    refuse(me, kind,
           "rank " + std::to_string(p) + " is not in a group of " + std::to_string(to_int(me.world)));
  }
  if (kind != CommKind::broadcast && peer == me.rank)
    refuse(me, kind, "a rank cannot send to itself or receive from itself");
}

Operation check_tensor(Member me, CommKind kind, const at::Tensor& t) {
  if (!t.defined()) refuse(me, kind, "the tensor is not defined");
  if (!t.is_contiguous()) refuse(me, kind, "the tensor is not contiguous");
  return {kind, dtype_of(t), Elements(t.numel()), me.world, 1, me.what.purpose, me.what.unit};
}

// Whether `shard` shares no memory with `full`, or is exactly this rank's slice of it.
bool overlap_allowed(Member me, const at::Tensor& full, const at::Tensor& shard) {
  if (shard.numel() == 0) return true;
  const auto* f = static_cast<const char*>(full.const_data_ptr());
  const auto* s = static_cast<const char*>(shard.const_data_ptr());
  const auto shard_bytes = static_cast<std::int64_t>(shard.nbytes());
  const bool apart = s + shard_bytes <= f || f + full.nbytes() <= s;
  return apart || s == f + to_int(me.rank) * shard_bytes;
}

Operation check_shards(Member me, CommKind kind, const at::Tensor& full, const at::Tensor& shard) {
  const Operation whole = check_tensor(me, kind, full);
  const Operation part = check_tensor(me, kind, shard);
  if (whole.dtype != part.dtype) {
    refuse(
        me, kind,
        "full is " + std::string(name_of(whole.dtype)) + " but shard is " + std::string(name_of(part.dtype)));
  }
  if (full.device() != shard.device()) refuse(me, kind, "full and shard are on different devices");
  if (whole.elements != part.elements * to_int(me.world)) {
    refuse(me, kind,
           "full has " + human_count(whole.elements.value()) + " elements, which is not " +
               std::to_string(to_int(me.world)) + " ranks x " + human_count(part.elements.value()) +
               " of shard");
  }
  if (!overlap_allowed(me, full, shard)) {
    refuse(me, kind, "shard overlaps full, and is not slice " + std::to_string(to_int(me.rank)) + " of it");
  }
  return whole;
}

}  // namespace

DType dtype_of(const at::Tensor& t) {
  static constexpr at::ScalarType kTypes[] = {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf,
                                              at::kLong,   at::kInt,   at::kByte};  // in the order of DType
  const auto* type = std::ranges::find(kTypes, t.scalar_type());
  if (type == std::end(kTypes)) {
    throw InputError(ExitCode::usage, "communication",
                     std::string("no operation carries ") + c10::toString(t.scalar_type()), "");
  }
  return static_cast<DType>(type - kTypes);
}

Operation check_operation(Member me, CommKind kind, const at::Tensor& from, const at::Tensor& to,
                          std::optional<Rank> peer) {
  if (peer) check_peer(me, kind, *peer);
  if (kind == CommKind::reduce_scatter) return check_shards(me, kind, from, to);
  if (kind == CommKind::all_gather) return check_shards(me, kind, to, from);
  return check_tensor(me, kind, from);
}

void check_on_cpu(Member me, const Operation& op, const at::Tensor& t) {
  if (!t.device().is_cpu())
    refuse(me, op.kind, "the tensor is on " + t.device().str() + ", this transport needs host memory");
}

void check_on_gpu(const std::string& text, int device, const at::Tensor& t) {
  if (t.get_device() != device)
    throw InputError(
        ExitCode::usage, text,
        "the tensor is on " + t.device().str() + ", this rank's GPU is " + std::to_string(device), "");
}

}  // namespace sc
