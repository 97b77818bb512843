// How a step is executed: as the strategy says it, or captured once as a graph of the GPU and replayed.
#pragma once

#include <cstdint>
#include <span>

#include "common/gpu/gpu.h"
#include "common/gpu/gpu_profile.h"
#include "common/optim/adamw.h"
#include "common/run/observer.h"
#include "common/run/train_job.h"
#include "common/watch/fault.h"

namespace sc::detail {

/// What a runner needs. All outlive it.
struct StepParts {
  const RunShape& shape;
  Strategy& strategy;
  const StepScalars& scalars;
  const Fault& fault;   // --inject
  Gpu* gpu;             // null on the CPU
  GpuProfile* profile;  // null without --profile
};

/// --inject, or no fault.  Errors: InputError 64.
Fault fault_of(const TrainJob& job);

/// Whether a rank of that shape poisons its gradients in `step`: ranks that compute the same micro-batches,
/// as stages of a pipeline do, alike, since the scale is read where the loss is.
bool poisons(const Fault& fault, const RunShape& shape, std::int64_t step);

class StepRunner {
 public:
  StepRunner(const TrainJob& job, const StepParts& parts, Observer& observer);
  ~StepRunner();  // NCCL ends only when no graph holds its operations
  StepRunner(const StepRunner&) = delete;
  StepRunner& operator=(const StepRunner&) = delete;

  /// What becomes of a step's scale before backward reads it: fp16's loss scale, and what --inject asks for.
  /// May not return.
  void prepare(std::span<const Batch> batches, std::int64_t step);
  /// Enqueues the step; nothing has been waited for.
  StepResult run(std::span<const Batch> batches, std::int64_t step);

 private:
  StepResult profiled(std::span<const Batch> batches);
  StepResult replayed(std::span<const Batch> batches);

  const TrainJob& job_;
  const StepParts parts_;
  Observer& observer_;
  StepResult captured_;  // of the graph: the same tensors at every replay
};

}  // namespace sc::detail
