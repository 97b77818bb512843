// What a run prints about its predictions: the plan before it starts, predicted against measured at its end.
// No torch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/types.h"
#include "common/memory/plan.h"
#include "common/watch/comm_op.h"
#include "common/watch/timetable.h"

namespace sc {

/// The bytes of one rank; `total` counts those on its device.
struct RankBytes {
  ByPlace<Bytes> of;
  Bytes total;
  bool operator==(const RankBytes&) const = default;
};
RankBytes bytes_of(const MemoryPlan& plan);

/// What one rank's ledger and recording found in a run.
struct Measured {
  RankBytes peak;  // its total is the peak of the sum
  ByName peak_by_name;
  CommPlan operations;  // of one training step
};

/// The number of nodes in a captured step. An event is a timestamp, or an edge between streams.
struct GraphNodes {
  std::int64_t all = 0, events = 0;
};

/// The check of a GPU's memory: the peak of what LibTorch's allocator handed out, and windows
/// (Communicator::window), against the parts that it should consist of.
struct AllocatorCheck {
  struct Part {
    std::string name;
    Bytes bytes;
  };
  // The predicted parts: the ledger, the libraries' constants, the scratch of one operation.
  std::vector<Part> parts;
  bool at_most = false;                     // the last part is an upper bound
  Bytes peak, windows;                      // peak includes windows
  std::optional<std::int64_t> allocations;  // of the checked step; empty if an operation may allocate
  // Other memory in use on the GPU, measured, in the order in which it appeared.
  std::vector<Part> beside = {};
  [[nodiscard]] Bytes predicted() const;
  /// Whether the peak is within 1 % of the prediction, or below it if that is an upper bound. Allocations are
  /// not judged.
  [[nodiscard]] bool holds() const;
};
std::string format_allocator(const AllocatorCheck& check);

/// A table of how long a step took and for how much of it ranks were idle: measured, simulated, by formula.
std::string format_timetable(const Timetable& timetable);

/// What each rank of a set of equal ranks holds and sends.
struct RankPlan {
  MemoryPlan memory;
  CommPlan operations;
  RankSet ranks = {0, 1, 1};
  /// The bytes that the first rank of the set sends.
  [[nodiscard]] Bytes sent() const { return moved_bytes(operations, Way::wire, Rank{ranks.first}); }
  /// Whether ranks have equal plans and send equally much, wherever they are.
  bool operator==(const RankPlan& other) const {
    return memory == other.memory && operations == other.operations && sent() == other.sent();
  }
};

/// What a row of bytes is called: "workspace", or "workspace, pinned" at another place than the device.
std::string at_place(std::string_view what, Place place);

/// Ascending rank numbers as "rank 3", "ranks 0-3" or "ranks 0, 2, ..., 14".
std::string ranks_in_words(const std::vector<std::int64_t>& ranks);

/// Two tables: bytes of a rank by purpose, each buffer with its formula; operations of a step with the bytes
/// that a rank sends for them (the rank that sends the most, if the ranks of a group differ).
///   ranks  the plans of all ranks. Plans that differ stand next to each other, and the formulas are those of
///          the rank that holds most.
std::string format_plan_table(const std::vector<RankPlan>& ranks, WorldSize world);

/// A table of predicted and measured purposes, their total, operations and bytes sent by `rank`. A row that
/// differs says so, and a purpose that differs names its buffers that do.
std::string format_predicted_measured(const MemoryPlan& memory, const CommPlan& comm,
                                      const Measured& measured, WorldSize world, Rank rank);

/// Whether every row of format_predicted_measured() is equal; names of buffers may differ.
bool as_predicted(const MemoryPlan& memory, const CommPlan& comm, const Measured& measured);

}  // namespace sc
