// Communication as data: what a plan predicts and what a recording finds. No torch, no MPI.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/mesh.h"
#include "common/base/types.h"

namespace sc {

/// What part of a program an operation or a step belongs to. Plans speak of `train` alone.
enum class Phase : std::uint8_t { setup, train, eval, check };
constexpr std::string_view name_of(Phase phase) {
  constexpr std::string_view kNames[] = {"setup", "train", "eval", "check"};
  return kNames[static_cast<int>(phase)];
}

/// What takes a while, ends by itself and is waited for: messages between ranks, and one rank's own copies
/// between its device and its host, and transfers from and to a disk.
enum class CommKind : std::uint8_t {
  all_reduce,
  reduce_scatter,
  all_gather,
  broadcast,
  send,
  recv,
  barrier,
  to_host,
  to_device,
  disk_read,
  disk_write
};
inline constexpr int kCommKinds = 11;
constexpr std::string_view name_of(CommKind kind) {
  constexpr std::string_view kNames[] = {"all_reduce", "reduce_scatter", "all_gather", "broadcast",
                                         "send",       "recv",           "barrier",    "to_host",
                                         "to_device",  "disk_read",      "disk_write"};
  return kNames[static_cast<int>(kind)];
}

/// Over what an operation's bytes go.
enum class Way : std::uint8_t { wire, link, disk };
constexpr std::string_view name_of(Way way) {
  constexpr std::string_view kNames[] = {"wire", "link", "disk"};
  return kNames[static_cast<int>(way)];
}
constexpr Way way_of(CommKind kind) {
  if (kind < CommKind::to_host) return Way::wire;
  return kind < CommKind::disk_read ? Way::link : Way::disk;
}

/// What an operation carries.
enum class OpPurpose : std::uint8_t {
  none,  // not said
  parameters,
  gradients,  // of parameters
  activations,
  activation_gradients,
  states,   // of the optimizer: master, momentum, variance
  sums,     // loss, tokens, sum of squares, overflow flag
  scalars,  // learning rate, step, clip
  hashes,   // of parameters, to be compared
  tokens,
  numbers,   // anything else that ranks tell each other
  text,      // the same in words
  addresses  // what ranks need to reach each other
};
constexpr std::string_view name_of(OpPurpose purpose) {
  constexpr std::string_view kNames[] = {
      "none",    "parameters", "gradients", "activations", "activation_gradients",
      "states",  "sums",       "scalars",   "hashes",      "tokens",
      "numbers", "text",       "addresses"};
  return kNames[static_cast<int>(purpose)];
}

inline constexpr int kNoUnit = -1;
/// The same, and of which unit of the model.
struct What {
  OpPurpose purpose = OpPurpose::none;
  int unit = kNoUnit;  // 0 the embedding, 1 to L the blocks, then the head; kNoUnit: of none, or of several
  bool operator==(const What&) const = default;
};

/// One kind of operation. `elements` counts the whole logical tensor: all_reduce, broadcast, send, recv: the
/// tensor; reduce_scatter and all_gather: the full one, ranks * shard.
struct Operation {
  CommKind kind{};
  DType dtype{};
  Elements elements;
  WorldSize ranks{1};  // of the group; of a copy or a transfer: this one
  int stride = 1;      // from one rank of the group to the next, in the world; 0: they are not evenly spaced
  OpPurpose purpose = OpPurpose::none;
  int unit = kNoUnit;
  auto operator<=>(const Operation&) const = default;
  [[nodiscard]] What what() const { return {purpose, unit}; }
  /// Alike in kind, dtype, elements and ranks.
  [[nodiscard]] Operation without_names() const { return {kind, dtype, elements, ranks}; }
};

/// How often each operation happens in one training step on one rank.
struct CommPlan {
  std::map<Operation, std::int64_t> count;
  /// An operation of nothing is none.
  void add(const Operation& op, std::int64_t times = 1);
  void add(Operation op, const What& what, std::int64_t times = 1);
  /// The same operations, alike ones together: what tables show.
  [[nodiscard]] CommPlan without_names() const;
  bool operator==(const CommPlan&) const = default;
};

/// Whom an operation meets.
struct Meeting {
  RankSet group;
  std::optional<Rank> peer;     // of a send or receive, in the world
  std::int64_t collective = 0;  // else: which of the group's collectives it is, 1, 2, ...
  bool operator==(const Meeting&) const = default;
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

/// Bytes that `rank` of op's group sends, exactly but for a broadcast, for any count (Local counts what Mpi
/// sends):
///   reduce_scatter, all_gather  (N-1)/N of the full tensor
///   all_reduce                  n - s + (N-1) s elements with s = slice_of(n, rank).size(): every other
///                               rank's slice, then its own to all. 2(N-1)/N of n if N divides n, or if
///                               N = 2; over all ranks the sum is always 2(N-1) n. Rank 0 sends the most.
///   broadcast                   the tensor once, as root and as every forwarding rank of the chain; its last
///                               rank sends none, but counts as any other: the operation does not say who is
///                               last
///   send                        the tensor
///   recv, barrier, and what is no message: none
/// A group of one sends nothing. Without `rank`: of the rank that sends the most, which is every rank where
/// the counts divide.
Bytes wire_bytes(const Operation& op, Rank rank = Rank{0});

/// Bytes that `rank` of the world moves over one way: it sends them, or copies them, or reads and writes
/// them.
/// Of a part of the world the rank in it is taken to be rank / stride % ranks, as a mesh has it.
Bytes moved_bytes(const CommPlan& plan, Way way, Rank rank);

/// "all_reduce of block 7's gradients (50,048 f32)"; without a purpose "all_reduce of 50,048 f32".
///   last_unit  of the model; without it a unit is a number: "unit 7's".
std::string describe(const Operation& op, int last_unit = kNoUnit);
/// "block 7", "the embedding", "the head"; without last_unit "unit 7".
std::string unit_in_words(int unit, int last_unit);
/// For tables: the same with a unit's number, and with how many ranks take part where a group is not all
/// `world`: "..., 2 ranks", and how far apart they are where that is not one.
std::string describe(const Operation& op, WorldSize world);

}  // namespace sc
