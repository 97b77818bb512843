// What lesson 11 has before its first step: the groups of its mesh, and a stage whose matrices its tensor
// group shares.
#include "combined.h"
#include "tensor_stage.h"

namespace sc {
namespace {

PipelineParts parts_of(const RunContext& context, const CombinedOptions& options, Communicator* tensor) {
  PipelineParts parts = parts_of(context, share_of(context.shape, options));
  if (tensor != nullptr)
    parts.layers = [&context, options, tensor](const Share& of) {
      return std::make_unique<TensorStage>(context, *tensor, of, part_sizes_of(context.shape, of, options));
    };
  return parts;
}

}  // namespace

// [anchor: groups-of-the-mesh]
// The tensor group has the ranks that differ from this one along the tensor axis alone. Lesson 07's Pipeline
// makes the groups of its own two axes.
Combined::Combined(RunContext& context, const Options& options)
    : TensorGroup{group_of(context, {Axis::tensor})},
      Pipeline(context, pipeline_options(context.shape, options), parts_of(context, options, tensor_.get())),
      tokens_(options.tokens) {}

}  // namespace sc
