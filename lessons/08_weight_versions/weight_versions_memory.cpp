// What lesson 08 takes from the ledger beside a stage's memory (common/pipeline), and what it has before its
// first step.
#include "common/pipeline/measured.h"
#include "weight_versions.h"

namespace sc {

WeightVersions::WeightVersions(RunContext& context, const Options& options)
    : context_(context),
      endless_(context.shape, options),
      options_(options),
      stage_(context, endless_.share),
      messages_(context, endless_.share, stage_),
      pace_(context.timeline, endless_.share),
      slots_(endless_.share.schedule),
      everyone_(context.comm.split(0)),
      evaluated_(stage_.sums()),
      summed_(endless_.norm_lag + 1),
      results_left_(endless_.result_lag + 2),
      forward_read_(context.shape.mesh.size(Axis::stages)),
      tags_(static_cast<std::size_t>(endless_.share.slots.pools.weights)),
      since_(context.first_step) {
  PlannedBuffers buffers(context.ledger, Plans(options).memory_plan(context.shape));
  const std::int64_t sums = 4 * (endless_.norm_lag + 1);
  const at::Tensor numbers = buffers.zeros("sums and results in flight"),
                   results_host = buffers.zeros("results_host");
  const auto rows = [](const at::Tensor& of, std::int64_t width) {
    return Ring<at::Tensor>(of.view({-1, width}).unbind());
  };
  sums_ = rows(numbers.narrow(0, 0, sums), 4);
  own_sums_ = rows(numbers.narrow(0, sums, sums), 4);
  clip_by_ = numbers.narrow(0, 2 * sums, 4);
  results_ = rows(numbers.narrow(0, 2 * sums + 4, results_host.numel()), Endless::kResult);
  loss_scale_ = buffers.zeros("divisor").select(0, 0);
  results_host_ = rows(results_host, Endless::kResult);
  const BatchConfig& batch = context.shape.workload.batch;
  if (const at::Tensor tokens = buffers.zeros("tokens in flight"); tokens.defined())
    tokens_ = Ring(tokens.view({-1, batch.micro, batch.sequence}).unbind());
  context.timeline.keep_recent(kMeasuredSteps);
  stage_.warm_up(batch);
  warm_up();
}

// Makes one update that changes nothing, as of a gradient that is not finite, so that what a first use
// allocates on a GPU is there before the second step, which is checked.
void WeightVersions::warm_up() {
  sum_over_stages(0);
  summed_[0].wait();
  clip_by_[kNonFinite].fill_(1);
  global_norm_and_clip(clip_by_, 0, context_.scalars);
  step({});
  sums_[0].zero_(), own_sums_[0].zero_();
}

}  // namespace sc
