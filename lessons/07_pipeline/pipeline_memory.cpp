// What lesson 07 has before its first step: its groups of ranks, and a stage's memory (common/pipeline).
#include <utility>

#include "common/pipeline/measured.h"
#include "pipeline.h"

namespace sc {
namespace {

PipelineParts parts_of(const RunContext& context, const PipelineOptions& options) {
  PipelineParts parts{.share = share_of(context.shape, options)};
  const Share& share = parts.share;
  if (share.replicas > 1) parts.replicas = context.comm.split(share.stage);
  if (share.has_two_ends()) parts.ends = context.comm.split(share.is_an_end() ? share.replica : -1);
  return parts;
}

}  // namespace

Pipeline::Pipeline(RunContext& context, const Options& options)
    : Pipeline(context, options, parts_of(context, options)) {}

Pipeline::Pipeline(RunContext& context, const Options& options, PipelineParts parts)
    : context_(context),
      share_(std::move(parts.share)),
      stage_(context, share_, parts.layers ? parts.layers(share_) : nullptr),
      options_(options),
      messages_(context, share_, stage_, options.sends == Sends::blocking),
      pace_(context.timeline, share_),
      sums_(stage_.sums()),
      replicas_(std::move(parts.replicas)),
      ends_(std::move(parts.ends)),
      reduced_(stage_.held().size()),
      published_(stage_.held().size()) {
  publish_params();
  context.timeline.keep_recent(kMeasuredSteps);
  stage_.warm_up(context.shape.workload.batch);
}

}  // namespace sc
