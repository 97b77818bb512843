// The shape of a run or its plan, and what run_lesson itself holds besides the strategy.
#pragma once

#include "common/memory/plan.h"
#include "common/records/report.h"
#include "common/run/fit.h"
#include "common/run/planning.h"
#include "common/run/surroundings.h"
#include "common/run/train_job.h"
#include "common/watch/fault.h"

namespace sc::detail {

/// The number of intra-op threads of a rank if neither --threads nor OMP_NUM_THREADS gives it: one on a CPU;
/// with a GPU its share of this machine's cores.
int default_threads(DeviceKind device, std::int64_t cores, WorldSize ranks_here);

/// The shape of this rank: the checked one, with its place among the launched ranks. Sets LibTorch's intra-op
/// threads, which are part of it.
RunShape shape_of_run(RunShape prepared, const CommandLine& line, const Launch& launch);

/// The fault that --inject asks for, or none.
///   Errors  InputError 64.
Fault fault_of(const TrainJob& job);

/// Whether a rank makes its gradients NaN in `step`. All ranks that compute the same micro-batches do, such
/// as the stages of a pipeline, because the loss scale is read where the loss is.
bool poisons(const Fault& fault, const RunShape& shape, std::int64_t step);

LimitedRun limited_run(const AnyLesson& lesson, const RunShape& shape, const Facts& facts, Bytes cap);

/// Refuses a job whose ranks hold more than `cap`. `place` and `sharing` are those of LimitedRun.
///   Errors  InputError (exit 69).
void refuse_more_than(Bytes cap, const TrainJob& job, const std::string& place, std::int64_t sharing);

}  // namespace sc::detail
