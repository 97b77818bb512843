// What lesson 07 has before its first step: its groups of ranks, and a stage's memory (common/pipeline).
#include <utility>

#include "common/pipeline/measured.h"
#include "pipeline.h"

namespace sc {

PipelineParts parts_of(const RunContext& context, Share share) {
  const RunShape& shape = context.shape;
  PipelineParts parts{.share = std::move(share), .replicas = group_of(context, {Axis::data, Axis::context})};
  // The first and the last stage share a tied matrix, and meet in a group to add its gradients.
  if (parts.share.has_two_ends()) {
    const Rank of_first_stage = shape.mesh.moved(shape.rank, Axis::stages, 0);
    parts.ends = context.comm.split(parts.share.is_an_end() ? static_cast<int>(to_int(of_first_stage)) : -1);
  }
  return parts;
}

Pipeline::Pipeline(RunContext& context, const Options& options)
    : Pipeline(context, options, parts_of(context, share_of(context.shape, options))) {}

Pipeline::Pipeline(RunContext& context, const Options& options, PipelineParts parts)
    : context_(context),
      share_(std::move(parts.share)),
      replicas_(std::move(parts.replicas)),
      ends_(std::move(parts.ends)),
      stage_(context, share_, parts.layers ? parts.layers(share_) : nullptr),
      options_(options),
      messages_(context, share_, stage_, options.sends == Sends::blocking),
      pace_(context.timeline, share_),
      sums_(stage_.sums()) {
  publish_params();
  context.timeline.keep_recent(kMeasuredSteps);
  stage_.warm_up(context.shape.workload.batch);
}

}  // namespace sc
