// What a step took, from the marks that every stage has left: measured, simulated from it, by formula.
#pragma once

#include <optional>

#include "common/comm/communicator.h"
#include "common/memory/plan.h"
#include "common/watch/timeline.h"
#include "common/watch/timetable.h"
#include "share.h"

namespace sc {

/// Steps whose times are kept: the last ones.
inline constexpr std::int64_t kMeasuredSteps = 20;

/// Collective; on rank 0, of its replica. Nothing where no whole step was seen: on GPUs times are kept with
/// --trace only, since they cost launches.
///   measured    the step with the median makespan
///   simulated   pipedream::simulate with what each stage took in that step, and what a message took for which
///               somebody waited
std::optional<Timetable> timetable_of(const Share& share, const PipelineOptions& options,
                                      const RunShape& shape, const Timeline& timeline, Communicator& comm);

}  // namespace sc
