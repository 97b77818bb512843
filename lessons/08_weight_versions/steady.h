// What a window of the steady state takes: by costs, and as a run's marks show it.
#pragma once

#include <optional>

#include "common/comm/communicator.h"
#include "common/watch/timeline.h"
#include "common/watch/timetable.h"
#include "endless.h"

namespace sc {

/// Steps whose times are kept: the last ones.
inline constexpr std::int64_t kTimedSteps = 20;

/// From the end of one window to the end of the next.
struct Steady {
  double seconds = 0;
  double idle = 0;  // share of the stages' time
};
/// costs: in seconds.
Steady steady_by(const Endless& endless, const pipedream::Costs& costs);

/// Collective; on rank 0. `since`: the step that was window 0. `read`: what this rank has read.  Rows of time where marks of two whole steady windows were
/// left, on GPUs with --trace only.
Timetable steady_timetable(const Endless& endless, const VersionOptions& options, const Timeline& timeline,
                           std::int64_t since, const VersionsRead& read, Communicator& comm);

}  // namespace sc
