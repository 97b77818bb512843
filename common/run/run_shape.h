// What a run or its plan is made for, and what run_lesson itself holds beside the strategy.
#pragma once

#include "common/memory/plan.h"
#include "common/run/fit.h"
#include "common/run/train_job.h"

namespace sc::detail {

/// What the ranks communicate through. apart: they are processes of their own.
CommBackend comm_backend(DeviceKind device, bool share_gpu, bool apart);

/// Intra-op threads of a rank that neither --threads nor OMP_NUM_THREADS names: one on a CPU; beside a GPU
/// its share of this machine's cores.
int default_threads(DeviceKind device, std::int64_t cores, WorldSize ranks_here);

/// The shape of this rank. Sets LibTorch's intra-op threads, which are part of it.
RunShape shape_of_run(const TrainJob& job);

/// fp16 alone has so few exponents that gradients vanish.
inline bool scales_loss(const RunShape& shape) { return shape.workload.precision.dtype == DType::f16; }

/// Adds what run_lesson itself takes from the ledger beside the strategy: a step's scalars, the loader, the
/// transport's scratch. data_ranks: real ranks that share a step's micro-batches.
void plan_surroundings(const RunShape& shape, std::int64_t data_ranks, MemoryPlan& plan);

/// All that a rank of the lesson, or of another strategy, holds: the strategy's plan and its surroundings.
MemoryPlan plan_of_run(const AnyLesson& lesson, const RunShape& shape);
MemoryPlan plan_of_run(const StrategyPlans& strategy, const RunShape& shape);

/// That run with a limit.
LimitedRun limited_run(const AnyLesson& lesson, const RunShape& shape, Bytes cap);

}  // namespace sc::detail
