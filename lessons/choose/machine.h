// The machines that `choose` plans for: what they have, and which share of it steps have been measured to
// reach. No torch.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "common/base/gpu_architectures.h"
#include "common/base/types.h"

namespace sc::choose {

/// One GPU by its vendor's data sheet. Rates are one way, in units per second.
struct Gpu {
  const char* name;
  Capability capability;
  bool has_run;             // whether lessons have been run on such a GPU
  double flops, flops_f32;  // dense products: bf16 (summed in fp32), fp32
  Bytes memory;
  double memory_rate;      // bytes
  double link, host_link;  // bytes: to other GPUs (NVLink; without it PCIe), to the host (PCIe x16)
  const char* source;
};
std::span<const Gpu> known_gpus();
/// The GPU of that name in the table.
///   Errors  InputError 64, with the nearest name.
const Gpu& gpu_named(const std::string& name);

/// What a user says of a machine: one host, or nodes of equally many GPUs, whose ranks are neighbours. What
/// is not given is absent, except for a disk's size: then the disk is as large as necessary.
struct Machine {
  Gpu gpu;
  std::int64_t gpus = 1;
  Bytes memory = {};                                      // of one GPU
  std::optional<Bytes> host_memory = {}, disk_size = {};  // of all hosts together
  // Bytes per second, one way: from a GPU to others of its node, and to or from the disk.
  std::optional<double> link = {}, disk = {};
  std::optional<std::int64_t> gpus_per_node = {};  // empty: there is one node
  std::optional<double> node_link = {};  // what a GPU sends to other nodes, through its own network card
  [[nodiscard]] std::int64_t node() const { return gpus_per_node.value_or(gpus); }
};

/// How long a rank's message takes: call_seconds + b / bytes seconds for b bytes.
struct MessageRate {
  double call_seconds = 0, bytes = 0;
};

/// The rates of sums and gathers by copy engine, between GPUs that reach each other's memory.
struct CopyRates {
  MessageRate sum = {}, gather = {};
};

/// The rates that a step reaches: a machine's peaks times the shares measured on an H200.
struct Rates {
  double flops = 0;         // of products, in the run's dtype
  double start_tokens = 0;  // a micro-batch of n tokens takes as long as n + start_tokens at `flops`
  double memory = 0, link = 0, host_link = 0;
  double call_seconds = 0;  // of a collective, or of a message, without its bytes
  double taken = 0;  // how much a collective slows products down meanwhile, as a share of its time alone
  // Lesson 10's copies between two GPUs, and between more, where copies go to several at once.
  CopyRates pair = {}, group = {};
  double eager = 1;               // how many times as long lesson 08's steps take, which no graph replays
  double eager_host = 1;          // the same for passes of lessons 05 and 06, during copies
  double part_start_tokens = 0;   // like start_tokens, for a rank that has a part of each matrix
  double adam = 0;                // parameters per second, with all of the host's threads
  double adam_early = 0;          // the same where states lie twice, and each update writes the other half
  double disk = 0;                // bytes per second, reads and writes together; 0: there is no disk
  std::int64_t node = INT64_MAX;  // GPUs of a node
  double node_link = 0;           // bytes per second from a GPU to other nodes
  [[nodiscard]] const CopyRates& by_copy(std::int64_t ranks) const { return ranks == 2 ? pair : group; }
  /// How many ranks of a group are in one node, each `stride` from the next; all of them if the group lies in
  /// a node.
  [[nodiscard]] std::int64_t members_in_node(std::int64_t ranks, std::int64_t stride) const;
  [[nodiscard]] bool leaves_node(std::int64_t ranks, std::int64_t stride) const {
    return members_in_node(ranks, stride) < ranks;
  }
  /// The bytes per second that each rank of a group sends in a collective: a ring's edge between nodes is
  /// shared by the network cards of the ranks in a node.
  [[nodiscard]] double rate(std::int64_t ranks, std::int64_t stride) const;
  /// The seconds of a group's collective without its bytes: call_seconds, and the ring's hops beyond those of
  /// two ranks in a node. An all_reduce goes `there_and_back`.
  ///   Source  hops: NCCL 2.30, src/graph/tuning.cc, hwLatencies, ring, protocol Simple
  [[nodiscard]] double call(std::int64_t ranks, std::int64_t stride, bool there_and_back) const;
};

inline std::int64_t Rates::members_in_node(std::int64_t ranks, std::int64_t stride) const {
  return std::min(ranks, std::max<std::int64_t>(1, node / std::max<std::int64_t>(1, stride)));
}

inline double Rates::rate(std::int64_t ranks, std::int64_t stride) const {
  if (!leaves_node(ranks, stride)) return link;
  return std::min(link, static_cast<double>(members_in_node(ranks, stride)) * node_link);
}

inline double Rates::call(std::int64_t ranks, std::int64_t stride, bool there_and_back) const {
  constexpr double kHop = 3.4e-6, kNodeHop = 14e-6;
  const std::int64_t nodes = ceil_div(ranks, members_in_node(ranks, stride));
  const auto between = static_cast<double>(nodes - 1), within = static_cast<double>(ranks - nodes);
  return call_seconds + (there_and_back ? 2 : 1) * (kNodeHop * between + kHop * (within - 1));
}

}  // namespace sc::choose
