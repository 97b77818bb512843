// What lesson 11 has before its first step: the groups of its mesh, and a stage whose matrices its tensor group shares.
#include "combined.h"
#include "tensor_stage.h"

namespace sc {
namespace {

std::unique_ptr<Layers> layers_of(const RunContext& context, Communicator* group, const Share& share,
                                  const CombinedOptions& options) {
  if (group == nullptr) return nullptr;
  return std::make_unique<TensorStage>(context, *group, share, part_sizes_of(context.shape, share, options));
}

// Ranks of one color, or null where this one would be alone.
std::unique_ptr<Communicator> group_of(RunContext& context, bool needed, std::int64_t color) {
  return needed ? context.comm.split(static_cast<int>(color)) : nullptr;
}

}  // namespace

// [anchor: three-splits]
// rank = (stage x data + replica) x tensor + tensor rank: who has much to say to each other is near.
Combined::Combined(RunContext& context, const Options& options)
    : context_(context),
      options_(options),
      share_(share_of(context.shape, options)),
      tensor_(group_of(context, context.shape.tensor > 1, to_int(context.shape.rank) / context.shape.tensor)),
      data_(group_of(context, share_.replicas > 1,
                     share_.stage * context.shape.tensor + tensor_rank(context.shape))),
      ends_(group_of(
          context, share_.has_two_ends(),
          share_.is_an_end() ? share_.replica * context.shape.tensor + tensor_rank(context.shape) : -1)),
      stage_(context, share_, layers_of(context, tensor_.get(), share_, options)),
      messages_(context, share_, stage_),
      pace_(context.timeline, share_),
      sums_(stage_.sums()),
      reduced_(stage_.held().size()) {
  if (data_ && share_.shards > 1)
    for (Stage::Held& held : stage_.held())
      data_->all_gather(held.params_slice, held.params, {OpPurpose::parameters, held.unit}).wait();
  stage_.warm_up(context.shape.workload.batch);
}

}  // namespace sc
