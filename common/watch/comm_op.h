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

/// The part of a program that an operation or a step belongs to. Plans contain `train` alone.
enum class Phase : std::uint8_t { setup, train, eval, check };
constexpr std::string_view name_of(Phase phase) {
  constexpr std::string_view kNames[] = {"setup", "train", "eval", "check"};
  return kNames[static_cast<int>(phase)];
}

/// The kinds of asynchronous operations: messages between ranks, a rank's copies between its device and its
/// host, and transfers to and from a disk.
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

/// The path that an operation's bytes take: between ranks, between device and host, or to and from a disk.
enum class Way : std::uint8_t { wire, link, disk };
constexpr std::string_view name_of(Way way) {
  constexpr std::string_view kNames[] = {"wire", "link", "disk"};
  return kNames[static_cast<int>(way)];
}
constexpr Way way_of(CommKind kind) {
  if (kind < CommKind::to_host) return Way::wire;
  return kind < CommKind::disk_read ? Way::link : Way::disk;
}

enum class OpPurpose : std::uint8_t {
  none,  // not stated
  parameters,
  gradients,  // of parameters
  activations,
  activation_gradients,
  states,   // of the optimizer: master, momentum, variance
  sums,     // loss, tokens, sum of squares, overflow flag
  scalars,  // learning rate, step, clip
  hashes,   // of parameters, for comparison between ranks
  tokens,
  numbers,   // any other numbers
  text,      // any other text
  addresses  // what ranks need to reach each other's memory
};
constexpr std::string_view name_of(OpPurpose purpose) {
  constexpr std::string_view kNames[] = {
      "none",    "parameters", "gradients", "activations", "activation_gradients",
      "states",  "sums",       "scalars",   "hashes",      "tokens",
      "numbers", "text",       "addresses"};
  return kNames[static_cast<int>(purpose)];
}

inline constexpr int kNoUnit = -1;
/// The payload of an operation, and the unit of the model that it belongs to.
struct What {
  OpPurpose purpose = OpPurpose::none;
  int unit = kNoUnit;  // 0 the embedding, 1 to L the blocks, then the head; kNoUnit: none, or several
  bool operator==(const What&) const = default;
};

/// One kind of operation. `elements` counts the whole logical tensor: for all_reduce, broadcast, send and
/// recv the tensor, for reduce_scatter and all_gather the full one, which is ranks * shard.
struct Operation {
  CommKind kind{};
  DType dtype{};
  Elements elements;
  WorldSize ranks{1};  // of the group; 1 for a copy or a transfer
  int stride = 1;      // distance in the world between neighbours of the group; 0: not evenly spaced
  OpPurpose purpose = OpPurpose::none;
  int unit = kNoUnit;
  auto operator<=>(const Operation&) const = default;
  [[nodiscard]] What what() const { return {purpose, unit}; }
  /// The operation without its payload: equal for equal kind, dtype, elements and ranks.
  [[nodiscard]] Operation without_names() const { return {kind, dtype, elements, ranks}; }
};

/// How often one rank issues each operation in one training step.
struct CommPlan {
  std::map<Operation, std::int64_t> count;
  /// Adds an operation, unless it has no elements.
  void add(const Operation& op, std::int64_t times = 1);
  void add(Operation op, const What& what, std::int64_t times = 1);
  /// The plan without payloads, with equal operations added up: what tables show.
  [[nodiscard]] CommPlan without_names() const;
  bool operator==(const CommPlan&) const = default;
};

/// The ranks that an operation communicates with.
struct Meeting {
  RankSet group;
  std::optional<Rank> peer;     // of a send or receive, as a rank of the world
  std::int64_t collective = 0;  // otherwise the sequence number of the group's collective: 1, 2, ...
  bool operator==(const Meeting&) const = default;
};

struct Slice {
  std::int64_t begin = 0, end = 0;
  [[nodiscard]] constexpr std::int64_t size() const { return end - begin; }
  bool operator==(const Slice&) const = default;
};

/// The slice of an all_reduce of n elements that rank r sums: [min(n, r c), min(n, (r + 1) c)) with c =
/// ceil(n / N). The first ranks get c elements each; the next may get fewer, and the last ones none.
constexpr Slice slice_of(Elements elements, Rank rank, WorldSize world) {
  const std::int64_t n = elements.value(), r = to_int(rank), c = ceil_div(n, to_int(world));
  return {r * c < n ? r * c : n, (r + 1) * c < n ? (r + 1) * c : n};
}

/// Bytes that `rank` of op's group sends; without `rank`, bytes of the rank that sends the most, which is
/// every rank if the counts divide. Exact for any count, except for a broadcast. (Local reports what Mpi
/// would send.)
///   reduce_scatter, all_gather  (N-1)/N of the full tensor
///   all_reduce                  n - s + (N-1) s elements with s = slice_of(n, rank).size(): every other
///                               rank's slice, then its own to all. 2(N-1)/N of n if N divides n, or if N =
///                               2; over all ranks the sum is always 2(N-1) n. Rank 0 sends the most.
///   broadcast                   the tensor once, for the root and for every forwarding rank of the chain.
///                               The last rank sends nothing but is counted like the others, since the
///                               operation does not say which rank is last
///   send                        the tensor
///   others, a group of one      nothing
Bytes wire_bytes(const Operation& op, Rank rank = Rank{0});

/// Bytes that `rank` of the world moves over one path: sends, copies, or reads and writes. In a group that is
/// a part of the world, its group rank is rank / stride % ranks, as in a mesh.
Bytes moved_bytes(const CommPlan& plan, Way way, Rank rank);

/// An operation in words: "all_reduce of block 7's gradients (50,048 f32)", or without a payload "all_reduce
/// of 50,048 f32". `last_unit` is the model's last unit; without it a unit is a number: "unit 7's".
std::string describe(const Operation& op, int last_unit = kNoUnit);
/// A unit in words: "block 7", "the embedding" or "the head"; without last_unit "unit 7".
std::string unit_in_words(int unit, int last_unit);
/// An operation in words for tables, with unit numbers. If a group is not all of `world`, its size is added
/// ("..., 2 ranks"), and the distance of its ranks if that is not one.
std::string describe(const Operation& op, WorldSize world);

}  // namespace sc
