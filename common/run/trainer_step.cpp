// How a step is executed: as the strategy says it, or captured once as a graph of the GPU and replayed.
#include <limits>

#include "common/run/run_shape.h"
#include "common/run/trainer.h"

namespace sc::detail {

// NCCL ends only when no graph holds its operations.
Trainer::~Trainer() {
  if (on_.gpu != nullptr) on_.gpu->drop_graph();
}

// What becomes of a step's scale before backward reads it: fp16's loss scale, and what --inject asks for. May not
// return.
void Trainer::prepare(std::span<const Batch> batches, std::int64_t step) {
  fault_.at_step(job_.launch.rank, step);
  at::Tensor scale = batches[0].scale;  // of all micro-batches
  if (scalars_.loss_scale.defined()) scale.mul_(scalars_.loss_scale);
  if (poisons(fault_, shape_, step)) scale.fill_(std::numeric_limits<float>::quiet_NaN());
}

// Enqueues the step; nothing has been waited for. On a GPU the first steps run as they are: libraries choose their
// kernels then, and the second one is checked. The third is captured, and replayed from then on: one launch instead of
// thousands.
StepResult Trainer::enqueue(std::span<const Batch> batches, std::int64_t step) {
  const bool replays =
      on_.gpu != nullptr && job_.graph() && !job_.profiles(step) && step > job_.checked_step();
  observer_.computing();
  if (job_.profiles(step)) profile_->begin_step();
  const StepResult result = replays ? replayed(batches) : strategy_->train_step(batches);
  if (job_.profiles(step)) profile_->end_step();
  observer_.computed();
  return result;
}

StepResult Trainer::replayed(std::span<const Batch> batches) {
  if (on_.gpu->captured() && observer_.drops_graph()) {
    on_.gpu->drop_graph();
    observer_.dropped();
  }
  if (!on_.gpu->captured()) on_.gpu->capture([&] { captured_ = strategy_->train_step(batches); });
  on_.gpu->replay();
  observer_.replayed();
  return captured_;
}

}  // namespace sc::detail
