// What of the default screen is about one run rather than about its plan: pure functions from a job to text.
#pragma once

#include <string>

#include "common/run/train_job.h"

namespace sc::detail {

/// "Lesson 01, data parallel, on 2 ranks: each holds ...", and a line of model and batch.
std::string format_header(const AnyLesson& lesson, const RunShape& shape, const BatchPlan& batch);

/// The command of the lesson after this one, on the same workload and as many ranks, compared with this run;
/// empty after the last lesson.
///   record  of this run
std::string format_next(const TrainJob& job, const std::string& record);

}  // namespace sc::detail
