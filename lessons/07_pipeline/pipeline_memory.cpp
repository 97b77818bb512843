// What lesson 07 has before its first step: a stage's memory (common/pipeline), and its groups of ranks.
#include "common/pipeline/measured.h"
#include "pipeline.h"

namespace sc {

Pipeline::Pipeline(RunContext& context, const Options& options)
    : context_(context),
      options_(options),
      share_(share_of(context.shape, options)),
      stage_(context, share_),
      messages_(context, share_, stage_, options.sends == Sends::blocking),
      pace_(context.timeline, share_),
      sums_(stage_.sums()),
      reduced_(stage_.held().size()),
      published_(stage_.held().size()) {
  if (share_.replicas > 1) replicas_ = context.comm.split(share_.stage);
  if (share_.has_two_ends()) ends_ = context.comm.split(share_.is_an_end() ? share_.replica : -1);
  if (replicas_ && share_.shards > 1)
    for (Stage::Held& held : stage_.held())
      replicas_->all_gather(held.params_slice, held.params, {OpPurpose::parameters, held.unit}).wait();
  context.timeline.keep_recent(kMeasuredSteps);
  stage_.warm_up(context.shape.workload.batch);
}

}  // namespace sc
