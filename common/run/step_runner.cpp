#include "common/run/step_runner.h"

#include <spdlog/fmt/fmt.h>

#include <limits>

#include "common/base/check.h"

namespace sc::detail {

Fault fault_of(const TrainJob& job) {
  if (job.line.inject.empty()) return {};
  const Fault fault = Fault::parse(job.line.inject, job.launch.world);
  const std::int64_t steps = job.config.workload.steps;
  if (fault.step() >= job.first_step && fault.step() < steps) return fault;
  throw InputError(ExitCode::usage, "--inject " + job.line.inject,
                   fmt::format("this run's steps are {} to {}", job.first_step, steps - 1),
                   "one of them (they count from 0), or more --steps");
}

bool poisons(const Fault& fault, const RunShape& shape, std::int64_t step) {
  RunShape named = shape;
  named.rank = fault.rank();
  return fault.nan_at(fault.rank(), step) && shape.at(Axis::data) == named.at(Axis::data);
}

StepRunner::StepRunner(const TrainJob& job, const StepParts& parts, Observer& observer)
    : job_(job), parts_(parts), observer_(observer) {}

StepRunner::~StepRunner() {
  if (parts_.gpu != nullptr) parts_.gpu->drop_graph();
}

void StepRunner::prepare(std::span<const Batch> batches, std::int64_t step) {
  parts_.fault.at_step(job_.launch.rank, step);
  at::Tensor scale = batches[0].scale;  // of all micro-batches
  if (parts_.scalars.loss_scale.defined()) scale.mul_(parts_.scalars.loss_scale);
  if (poisons(parts_.fault, parts_.shape, step)) scale.fill_(std::numeric_limits<float>::quiet_NaN());
}

// On a GPU the first steps run as they are: libraries choose their kernels then, and the second one is
// checked. The third is captured, and replayed from then on: one launch instead of thousands.
StepResult StepRunner::run(std::span<const Batch> batches, std::int64_t step) {
  const bool replays = parts_.gpu != nullptr && job_.graph() && step > job_.checked_step();
  observer_.computing();
  const StepResult result = job_.profiles(step) ? profiled(batches)
                            : replays           ? replayed(batches)
                                                : parts_.strategy.train_step(batches);
  observer_.computed();
  return result;
}

StepResult StepRunner::profiled(std::span<const Batch> batches) {
  parts_.profile->begin_step();
  const StepResult result = parts_.strategy.train_step(batches);
  parts_.profile->end_step();
  return result;
}

StepResult StepRunner::replayed(std::span<const Batch> batches) {
  if (parts_.gpu->captured() && observer_.drops_graph()) {
    parts_.gpu->drop_graph();
    observer_.dropped();
  }
  if (!parts_.gpu->captured()) parts_.gpu->capture([&] { captured_ = parts_.strategy.train_step(batches); });
  parts_.gpu->replay();
  observer_.replayed();
  return captured_;
}

}  // namespace sc::detail
