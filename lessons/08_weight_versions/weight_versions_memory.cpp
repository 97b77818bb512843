// What lesson 08 takes from the ledger beside a stage's memory (common/pipeline), and what it has before its
// first step.
#include <limits>

#include "common/memory/planned_buffers.h"
#include "common/pipeline/measured.h"
#include "weight_versions.h"

namespace sc {

WeightVersions::WeightVersions(RunContext& context, const Options& options)
    : context_(context),
      endless_(context.shape, options),
      stage_(context, share_),
      messages_(context, share_, stage_),
      pace_(context.timeline, share_),
      slots_(share_.schedule),
      sums_(context, endless_),
      alive_(share_.schedule.stages),
      versions_{.in_buffer = std::vector<int>(static_cast<std::size_t>(share_.slots.pools.weights))},
      since_(context.first_step) {
  PlannedBuffers buffers(context.ledger, Plans(options).memory_plan(context.shape));
  scale_ = buffers.zeros("divisor").select(0, 0);
  const BatchConfig& batch = context.shape.workload.batch;
  if (const at::Tensor tokens = buffers.zeros("tokens in flight"); tokens.defined()) {
    const at::Tensor by_micro_batch = tokens.view({-1, batch.micro, batch.sequence});
    for (std::int64_t i = 0; i < by_micro_batch.size(0); ++i) alive_[i].tokens = by_micro_batch[i];
  }
  context.timeline.keep_recent(kMeasuredSteps);
  stage_.warm_up(batch);
  warm_up();
}

// Makes one update that changes nothing, as of a loss that is not finite, so that what a first use allocates
// on a GPU is there before the second step, which is checked.
void WeightVersions::warm_up() {
  sums_[0][kLossSum].fill_(std::numeric_limits<double>::quiet_NaN());
  global_norm();
  for (Stage::Held& held : stage_.held()) adamw_step(context_, share_.layout, held.own);
  sums_.reset();
}

}  // namespace sc
