// What a run's steps took, from the marks of every stage: measured, simulated from these, and by formula.
#pragma once

#include <optional>

#include "common/comm/communicator.h"
#include "common/pipeline/share.h"
#include "common/pipeline/steps.h"
#include "common/watch/timeline.h"
#include "common/watch/timetable.h"
#include "pipedream/generate.h"

namespace sc {

/// The number of a run's last steps whose times are kept.
inline constexpr std::int64_t kMeasuredSteps = 20;

struct MeasuredRun {
  const Share& share;
  const StageOptions& options;
  Steps steps;
  std::int64_t first = 0;   // the run's step that is step 0 of `steps`
  bool last_alone = false;  // use only the last of the kept steps: a graph's, if there is one
  std::optional<pipedream::Family> family = {};  // the family whose closed formula is compared
};

/// The table of a run's times, on rank 0, with each stage's first rank. Collective. Empty if no whole step
/// was seen: on GPUs times are kept only with --trace, since they cost launches.
///   measured    the step that took the median time
///   simulated   by pipedream, with each stage's times in that step; and, if steps do not overlap, with the
///               time of a message that somebody waited for
Timetable timetable_of(const MeasuredRun& run, const Timeline& timeline, Communicator& comm);

}  // namespace sc
