// A schedule with times: when every action starts and ends, how long the whole takes, and how long each stage
// is idle.
#pragma once

#include <optional>
#include <vector>

#include "pipedream/schedule.h"

namespace sc::pipedream {

/// How long one microbatch takes on one stage (all its chunks together), and how long a step takes; in any
/// unit of time.
struct StageTimes {
  double forward = 1;
  double backward_input = 1;
  double backward_weights = 1;
  double step = 0;
  [[nodiscard]] double backward() const { return backward_input + backward_weights; }
  friend bool operator==(const StageTimes&, const StageTimes&) = default;
};

/// Bytes of one stage: what one microbatch keeps from forward to backward, and one weight version.
struct StageBytes {
  double activations = 0;
  double weights = 0;
  friend bool operator==(const StageBytes&, const StageBytes&) = default;
};

/// What actions and messages cost. `times` and `bytes` have one entry for all stages, or one per stage.
struct Costs {
  std::vector<StageTimes> times = {{}};
  std::vector<StageBytes> bytes = {{}};
  double message_bytes = 0;  // an activation or its gradient at a stage's edge
  double latency = 0;        // of a message
  double bandwidth = 0;      // of a directed pair of stages, bytes per unit of time; 0: no limit
  // The bandwidth of each stage's link to the next stage, where the last stage's next is the first; empty:
  // all equal.
  std::vector<double> bandwidths = {};
  friend bool operator==(const Costs&, const Costs&) = default;
};

/// Throws InputError (data) if times and bytes have neither one entry for all stages nor one per stage,
/// bandwidths are not one per stage or are given together with a bandwidth, or a number is negative or not
/// finite.
void require_costs(const Costs& costs, int stages);
/// The duration of a compute action or a step; 0 for all other actions.
double duration_of(const Schedule& schedule, const Costs& costs, const Action& action);

struct Span {
  double start = 0, end = 0;
};

/// What a stage did in a simulation, and the most that it held.
struct StageUse {
  double busy = 0;        // compute and steps
  double idle_share = 0;  // of the makespan
  /// The idle share of the time from the stage's first backward to the end of its last forward; empty if
  /// there is no such time.
  std::optional<double> steady_idle;
  double activation_bytes = 0, weight_bytes = 0, receive_bytes = 0;
};

struct Timeline {
  /// One span per action. Compute and step: the stage is busy. Send: the message is in transit. Receive: from
  /// posting to arrival. stash and drop take no time.
  std::vector<std::vector<Span>> spans;
  std::vector<StageUse> stages;
  double makespan = 0;
  double utilization = 0;  // busy time of all stages over stages * makespan
};

/// Simulates a schedule.
///   Compute   starts when the stage is free and its input has arrived; a chunk takes 1/chunks of the stage's
///             time.
///   Messages  of a directed pair travel in order. Each starts when it has been sent, its receive has been
///             posted and the one before has left the link (bytes / bandwidth per message); it arrives one
///             latency after it has left. A stage that sends continues at once.
///   Cost      linear in the number of actions.
///   Errors    InputError (data) if the schedule's messages do not match or it cannot be finished: check()
///             says why; and those of require_costs().
Timeline simulate(const Schedule& schedule, const Costs& costs);

}  // namespace sc::pipedream
