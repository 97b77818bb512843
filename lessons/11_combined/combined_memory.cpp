// What lesson 11 has before its first step: the groups of its mesh, and a stage whose matrices its tensor
// group shares.
#include "combined.h"
#include "tensor_stage.h"

namespace sc {
namespace {

// Ranks of one color, or null where this one would be alone.
std::unique_ptr<Communicator> group_of(const RunContext& context, bool needed, std::int64_t color) {
  return needed ? context.comm.split(static_cast<int>(color)) : nullptr;
}

// [anchor: three-splits]
// rank = (stage x data + replica) x tensor + tensor rank: who has much to say to each other is near.
std::unique_ptr<Communicator> tensor_group_of(const RunContext& context) {
  const RunShape& shape = context.shape;
  return group_of(context, shape.tensor > 1, to_int(shape.rank) / shape.tensor);
}

PipelineParts parts_of(const RunContext& context, const CombinedOptions& options, Communicator* tensor) {
  const RunShape& shape = context.shape;
  const auto of_tensor_rank = [&](std::int64_t index) { return index * shape.tensor + tensor_rank(shape); };
  PipelineParts parts{.share = share_of(shape, options)};
  const Share& share = parts.share;
  parts.replicas = group_of(context, share.replicas > 1, of_tensor_rank(share.stage));
  parts.ends =
      group_of(context, share.has_two_ends(), share.is_an_end() ? of_tensor_rank(share.replica) : -1);
  if (tensor != nullptr)
    parts.layers = [&context, options, tensor](const Share& of) {
      return std::make_unique<TensorStage>(context, *tensor, of, part_sizes_of(context.shape, of, options));
    };
  return parts;
}

}  // namespace

Combined::Combined(RunContext& context, const Options& options)
    : TensorGroup{tensor_group_of(context)},
      Pipeline(context, pipeline_options(context.shape, options), parts_of(context, options, tensor_.get())),
      tokens_(options.tokens) {}

}  // namespace sc
