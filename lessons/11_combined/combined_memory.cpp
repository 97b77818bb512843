// What lesson 11 has before its first step: the groups of its mesh, and a stage whose matrices its tensor
// group shares, and whose tokens its context group.
#include "combined.h"
#include "tensor_stage.h"

namespace sc {

// [anchor: groups-of-the-mesh]
// One of ranks that differ along an axis alone; the pipeline makes those of its own axes.
InnerAxes::InnerAxes(const RunContext& context)
    : run_(context),
      shape_(part_of(context.shape)),
      part_{shape_,         context.comm,     context.ledger, context.scalars,
            context.copies, context.timeline, context.record, context.first_step},
      tensor_(group_of(context, {Axis::tensor})),
      context_ranks_(group_of(context, {Axis::context})) {}

std::unique_ptr<Layers> InnerAxes::layers(const Share& share, const CombinedOptions& options) {
  std::unique_ptr<Layers> layers;
  if (tensor_)
    layers = std::make_unique<TensorStage>(part_, *tensor_, share, part_sizes_of(shape_, share, options));
  else
    layers = gpt_layers(shape_, share, part_.ledger);
  if (!context_ranks_) return layers;
  MemoryPlan plan;
  plan_context_axis(run_.shape, share, plan);
  PlannedBuffers buffers(part_.ledger, plan);
  attention_ =
      std::make_unique<ContextAttention>(*context_ranks_, part_.timeline, layers->model(),
                                         context_cut_of(run_.shape), ContextParallelOptions{}, buffers);
  layers->model().use(*attention_);
  const PartSizes& s = layers->model().sizes();
  own_tokens_ = buffers.zeros("own_tokens").view({-1, 2, s.B, s.T});
  return layers;
}

Combined::Combined(RunContext& context, const Options& options)
    : InnerAxes(context),
      Pipeline(part_, pipeline_options(part_.shape, options),
               [&] {
                 PipelineParts parts = parts_of(part_, share_of(part_.shape, options));
                 parts.layers = [&](const Share& share) { return layers(share, options); };
                 return parts;
               }()),
      tokens_(options.tokens) {}

}  // namespace sc
