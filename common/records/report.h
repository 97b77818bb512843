// What a run prints about its claims: the plan before it starts, predicted against measured at its end. No
// torch.
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

/// Bytes of one rank; `total` is that of the device.
struct RankBytes {
  ByPlace<Bytes> of;
  Bytes total;
  bool operator==(const RankBytes&) const = default;
};
RankBytes bytes_of(const MemoryPlan& plan);

/// What one rank's ledger and recording found.
struct Measured {
  RankBytes peak;  // the total: the peak of the sum
  ByName peak_by_name;
  CommPlan operations;  // of one training step
};

/// What a captured step consists of. An event is a moment that is measured, or an edge between streams.
struct GraphNodes {
  std::int64_t all = 0, events = 0;
};

/// A GPU: what LibTorch's allocator handed out at its peak, and windows (Communicator::window), beside what
/// should be the sum of it.
struct AllocatorCheck {
  struct Part {
    std::string name;
    Bytes bytes;
  };
  std::vector<Part>
      parts;             // predicted: the ledger, libraries' constants, what one operation takes for itself
  bool at_most = false;  // the last part is an upper bound
  Bytes peak, windows;   // peak includes them
  std::optional<std::int64_t> allocations;  // of the checked step; empty where an operation may allocate
  std::vector<Part> beside =
      {};  // in use on the GPU beside all that, measured, in the order in which it came
  [[nodiscard]] Bytes predicted() const;
  /// Within 1 % of the prediction, or below it where that is an upper bound. Allocations are shown, not held
  /// against it.
  [[nodiscard]] bool holds() const;
};
/// A table of it.
std::string format_allocator(const AllocatorCheck& check);

/// How long a step took and how much of it ranks were idle: measured, simulated, by formula.
std::string format_timetable(const Timetable& timetable);

/// What each rank of a set holds and sends.
struct RankPlan {
  MemoryPlan memory;
  CommPlan operations;
  RankSet ranks = {0, 1, 1};
  /// By the first of them.
  [[nodiscard]] Bytes sent() const { return moved_bytes(operations, Way::wire, Rank{ranks.first}); }
  /// Of any ranks.
  bool operator==(const RankPlan& other) const {
    return memory == other.memory && operations == other.operations && sent() == other.sent();
  }
};

/// What a row of bytes is about: "workspace", or "workspace, pinned" beside the device.
std::string at_place(std::string_view what, Place place);

/// "rank 3", "ranks 0-3", "ranks 0, 2, ..., 14" of ascending numbers.
std::string ranks_in_words(const std::vector<std::int64_t>& ranks);

/// Two tables: bytes of a rank by purpose, each buffer with its formula; operations of a step with what a
/// rank sends for them (the one that sends the most, where ranks of a group differ).
///   ranks  the plans of all ranks.
///          Plans that differ stand side by side, and the formulas are those of the rank that holds most.
std::string format_plan_table(const std::vector<RankPlan>& ranks, WorldSize world);

/// The same numbers side by side: purposes, their total, operations and bytes sent by `rank`; a row that
/// differs says so, and a purpose that does names the buffers that do.
std::string format_predicted_measured(const MemoryPlan& memory, const CommPlan& comm,
                                      const Measured& measured, WorldSize world, Rank rank);

/// Whether every row of it is equal; names of buffers may differ.
bool as_predicted(const MemoryPlan& memory, const CommPlan& comm, const Measured& measured);

}  // namespace sc
