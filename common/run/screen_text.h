// The parts of the default screen that are about a run, not its plan: pure functions from a job to text.
#pragma once

#include <string>

#include "common/run/train_job.h"

namespace sc::detail {

/// The lines "Lesson 01, data parallel, on 2 ranks: each holds ...", and one about model and batch.
std::string format_header(const AnyLesson& lesson, const RunShape& shape, const BatchPlan& batch);

/// The command for the next lesson, on the same workload and number of ranks, compared with this run's
/// `record`; empty after the last lesson.
std::string format_next(const TrainJob& job, const std::string& record);

}  // namespace sc::detail
