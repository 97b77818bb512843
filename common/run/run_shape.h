// What a run or its plan is made for, and what run_lesson itself holds beside the strategy.
#pragma once

#include "common/memory/plan.h"
#include "common/records/report.h"
#include "common/run/fit.h"
#include "common/run/planning.h"
#include "common/run/surroundings.h"
#include "common/run/train_job.h"
#include "common/watch/fault.h"

namespace sc::detail {

/// Intra-op threads of a rank that neither --threads nor OMP_NUM_THREADS names: one on a CPU; beside a GPU
/// its share of this machine's cores.
int default_threads(DeviceKind device, std::int64_t cores, WorldSize ranks_here);

/// The shape of this rank: the one that was looked at, where it was launched. Sets LibTorch's intra-op
/// threads, which are part of it.
RunShape shape_of_run(RunShape prepared, const CommandLine& line, const Launch& launch);

/// --inject, or no fault.  Errors: InputError 64.
Fault fault_of(const TrainJob& job);

/// Whether a rank of that shape poisons its gradients in `step`: ranks that compute the same micro-batches,
/// as stages of a pipeline do, alike, since the scale is read where the loss is.
bool poisons(const Fault& fault, const RunShape& shape, std::int64_t step);

/// That run with a limit.
LimitedRun limited_run(const AnyLesson& lesson, const RunShape& shape, const Facts& facts, Bytes cap);

/// place, sharing: as in LimitedRun.
///   Errors  InputError (exit 69): the job's ranks hold more than that.
void refuse_more_than(Bytes cap, const TrainJob& job, const std::string& place, std::int64_t sharing);

}  // namespace sc::detail
