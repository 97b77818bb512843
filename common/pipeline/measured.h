// What a run's steps took, from the marks that every stage has left: measured, simulated from it, by formula.
#pragma once

#include <optional>

#include "common/comm/communicator.h"
#include "common/pipeline/share.h"
#include "common/pipeline/steps.h"
#include "common/watch/timeline.h"
#include "common/watch/timetable.h"
#include "pipedream/generate.h"

namespace sc {

/// Steps whose times are kept: the last ones.
inline constexpr std::int64_t kMeasuredSteps = 20;

struct MeasuredRun {
  const Share& share;
  const StageOptions& options;
  Steps steps;
  std::int64_t first = 0;                        // the run's step that is step 0 of `steps`
  bool last_alone = false;                       // of the steps kept: a graph's, where there is one
  std::optional<pipedream::Family> family = {};  // whose closed formula is compared
};

/// Collective; on rank 0, of each stage's first rank. No rows where no whole step was seen: on GPUs times are
/// kept with --trace only, since they cost launches.
///   measured    the step that took the median time
///   simulated   by pipedream, with what each stage took in that step; and, where steps do not overlap, with
///               what a message took for which somebody waited
Timetable timetable_of(const MeasuredRun& run, const Timeline& timeline, Communicator& comm);

}  // namespace sc
