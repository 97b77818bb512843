// How a step is executed: as the strategy's code, or captured once as a graph of the GPU and replayed.
#include <limits>

#include "common/comm/nccl/nccl_communicator.h"
#include "common/run/run_shape.h"
#include "common/run/trainer.h"

namespace sc::detail {

// The graph goes first, because NCCL can only end after graphs with its operations are gone.
Trainer::~Trainer() {
  if (on_.gpu != nullptr) on_.gpu->drop_graph();
}

LossFactor Trainer::loss_factor(std::int64_t step) const {
  const bool poisoned = poisons(fault_, shape_, step);
  return {.factor = poisoned ? std::numeric_limits<double>::quiet_NaN() : 1,
          .loss_scale = scalars_.loss_scale};
}

// Enqueues a step without waiting for anything.
StepResult Trainer::enqueue(std::span<const Batch> batches, std::int64_t step) {
  const bool profiled = job_.profiles(step), replays = job_.replays(step) && !profiled;
  observer_.computing();
  if (profiled) profile_->begin_step();
  const StepResult result = replays ? replayed(batches, step) : strategy_->train_step(batches);
  if (profiled) profile_->end_step();
  observer_.computed();
  return result;
}

// [anchor: captured-once]
StepResult Trainer::replayed(std::span<const Batch> batches, std::int64_t step) {
  CommRecord& record = on_.world.comm().record();
  // Marks are nodes of the graph, so it is captured again without them.
  if (on_.gpu->captured() && job_.marks(step - 1) && !job_.marks(step)) {
    on_.gpu->drop_graph();
    record.forget_captured();
  }
  if (!on_.gpu->captured()) on_.gpu->capture([&] { captured_ = strategy_->train_step(batches); });
  on_.gpu->replay();
  record.replayed(ended_on_current_stream());  // all its operations run again
  return captured_;
}

}  // namespace sc::detail
