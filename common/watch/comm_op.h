// Communication as data: what a plan predicts and what a recording finds. No torch, no MPI.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "common/base/types.h"

namespace sc {

/// What part of a program an operation or a step belongs to. Plans speak of `train` alone.
enum class Phase : std::uint8_t { setup, train, eval, check };
constexpr std::string_view name_of(Phase phase) {
  constexpr std::string_view kNames[] = {"setup", "train", "eval", "check"};
  return kNames[static_cast<int>(phase)];
}

enum class CommKind : std::uint8_t { all_reduce, reduce_scatter, all_gather, broadcast, send, recv, barrier };
constexpr std::string_view name_of(CommKind kind) {
  constexpr std::string_view kNames[] = {"all_reduce", "reduce_scatter", "all_gather", "broadcast",
                                         "send",       "recv",           "barrier"};
  return kNames[static_cast<int>(kind)];
}

/// One kind of operation. `elements` counts the whole logical tensor: all_reduce, broadcast, send, recv: the
/// tensor; reduce_scatter and all_gather: the full one, world * shard.
struct CommOp {
  CommKind kind{};
  DType dtype{};
  Elements elements;
  auto operator<=>(const CommOp&) const = default;
};

/// How often each operation happens in one training step on one rank.
struct CommPlan {
  std::map<CommOp, std::int64_t> count;
  void add(CommKind kind, DType dtype, Elements elements, std::int64_t times = 1) {
    if (elements.value() > 0 && times > 0) count[{kind, dtype, elements}] += times;
  }
  bool operator==(const CommPlan&) const = default;
};

/// Elements [begin, end) of a flat tensor.
struct Slice {
  std::int64_t begin = 0, end = 0;
  [[nodiscard]] constexpr std::int64_t size() const { return end - begin; }
  bool operator==(const Slice&) const = default;
};

/// The part of an all_reduce of n elements that rank r sums: [min(n, r c), min(n, (r + 1) c)) with
/// c = ceil(n / N). So the first ranks have c elements each, then one may have fewer, and the last ones may
/// have none.
constexpr Slice slice_of(Elements elements, Rank rank, WorldSize world) {
  const std::int64_t n = elements.value(), r = to_int(rank), c = ceil_div(n, to_int(world));
  return {r * c < n ? r * c : n, (r + 1) * c < n ? (r + 1) * c : n};
}

/// Bytes that `rank` sends for `op` in a group of `world`, exactly but for a broadcast, for any count (Local
/// counts what Mpi sends):
///   reduce_scatter, all_gather  (N-1)/N of the full tensor
///   all_reduce                  n - s + (N-1) s elements with s = slice_of(n, rank).size(): every other
///                               rank's slice, then its own to all. 2(N-1)/N of n if N divides n, or if
///                               N = 2; over all ranks the sum is always 2(N-1) n. Rank 0 sends the most.
///   broadcast                   the tensor once, as root and as every forwarding rank of the chain; its last
///                               rank sends none, but counts as any other: the operation does not say who is
///                               last
///   send                        the tensor
///   recv, barrier               none
/// A world of one sends nothing. Without `rank`: of the rank that sends the most, which is every rank where
/// the counts divide.
Bytes wire_bytes(const CommOp& op, WorldSize world, Rank rank);
Bytes wire_bytes(const CommOp& op, WorldSize world);

/// "all_reduce of 1,000 f32", for messages.
std::string describe(const CommOp& op);

}  // namespace sc
