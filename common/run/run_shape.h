// What a run or its plan is made for, and what run_lesson itself holds beside the strategy.
#pragma once

#include "common/memory/plan.h"
#include "common/records/report.h"
#include "common/run/fit.h"
#include "common/run/planning.h"
#include "common/run/surroundings.h"
#include "common/run/train_job.h"

namespace sc::detail {

/// Intra-op threads of a rank that neither --threads nor OMP_NUM_THREADS names: one on a CPU; beside a GPU
/// its share of this machine's cores.
int default_threads(DeviceKind device, std::int64_t cores, WorldSize ranks_here);

/// The shape of this rank. Sets LibTorch's intra-op threads, which are part of it.
RunShape shape_of_run(const TrainJob& job);

/// That run with a limit.
LimitedRun limited_run(const AnyLesson& lesson, const RunShape& shape, Bytes cap);

}  // namespace sc::detail
