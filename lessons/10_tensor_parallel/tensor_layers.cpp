#include "tensor_layers.h"

#include <string>

#include "common/strategy/owned_slice.h"

namespace sc {
namespace {

constexpr Half kForward[] = {Half::attention, Half::mlp}, kBackward[] = {Half::mlp, Half::attention};

// "forward of block 7's attention", for whoever says where a rank hangs.
std::string in_words(int unit, Half half, const char* pass) {
  return std::string(pass) + " of block " + std::to_string(unit) + "'s " +
         (half == Half::attention ? "attention" : "MLP");
}

}  // namespace

TensorLayers::TensorLayers(const RunContext& context, Communicator& group, const ParamLayout& layout,
                           const PartSizes& sizes, const TensorParallelOptions& options)
    : timeline_(context.timeline), parts_(context.shape, layout, sizes) {
  for (std::int64_t i = 0; i < options.lanes; ++i) {
    PartBuffers buffers(context.shape, sizes, options.kept(), context.ledger,
                        window_of(group, WindowUse::sums));
    kept_.push_back(buffers);
    lanes_.emplace_back(parts_, group, context.shape.workload.activations, options.kept(), buffers);
  }
  sums_ = context.ledger.zeros(step_sums());
}

void TensorLayers::use(std::span<const UnitTensors> params, std::span<const UnitTensors> grads) {
  for (TensorLane& lane : lanes_) lane.use(params, grads);
}

// --- forward -----------------------------------------------------------------------------------------------

void TensorLayers::embed(std::span<const Batch> batches) {
  batches_ = batches;
  for (std::size_t i = 0; i < batches.size(); ++i) {
    lanes_[i].begin(kept_[i], 1, parts_.layout().num_blocks());
    timeline_.begin_micro_batch();
  }
  const auto mark = timeline_.mark(Pass::forward, 0);
  timeline_.comes_to("forward of the embedding");
  for (std::size_t i = 0; i < batches.size(); ++i) lanes_[i].embed(batches[i].tokens);
  lanes_.front().advance(1, Half::attention);
}

// [anchor: two-halves]
// Attention and MLP have one form. What is cut meets what is whole in two places only: before the first
// matrix and behind the second. A second micro-batch is half a step behind: one's messages travel behind the
// other's products.
void TensorLayers::forward_block(int unit) {
  const auto mark = timeline_.mark(Pass::forward, unit);
  TensorLane &one = active().front(), &other = active().back();
  const bool two = active().size() > 1;
  for (const Half half : kForward) {
    timeline_.comes_to(in_words(unit, half, "forward"));
    one.first(unit, half);
    if (two) other.advance(unit, half);
    one.second(unit, half);
    if (two) other.first(unit, half);
    if (half == Half::attention) one.advance(unit, Half::mlp);
    if (half == Half::mlp) one.advance(unit + 1, Half::attention);
    if (two) other.second(unit, half);
  }
}

// --- head --------------------------------------------------------------------------------------------------

void TensorLayers::head(Write write, at::Tensor& sums, bool backward) {
  const int last = parts_.layout().last_unit();
  const auto mark = timeline_.mark(Pass::head, last);
  if (backward) timeline_.comes_to("the head");
  if (active().size() > 1) active().back().advance(last, Half::attention);
  for (std::size_t i = 0; i < batches_.size(); ++i)
    lanes_[i].head(batches_[i].targets, backward ? batches_[i].scale : at::Tensor(), write_of(i, write),
                   sums);
  if (!backward) return;
  for (std::size_t i = 0; i < batches_.size(); ++i) lanes_[i].head_backward(write_of(i, write));
}

// --- backward ----------------------------------------------------------------------------------------------

// [anchor: behind-the-weights]
// Nobody waits for a gradient of weights, so messages travel behind their products: the sum behind the second
// matrix's, the next half's gradient behind the first one's. A second micro-batch's products hide more of
// them.
void TensorLayers::backward_block(int unit, Write write) {
  const auto mark = timeline_.mark(Pass::backward, unit);
  for (TensorLane& lane : active()) lane.recompute(unit);
  for (const Half half : kBackward) {
    timeline_.comes_to(in_words(unit, half, "backward"));
    for (TensorLane& lane : active()) lane.backward_to_norm(unit, half);
    for (std::size_t i = 0; i < batches_.size(); ++i) {
      lanes_[i].second_weights(unit, half, write_of(i, write));
      lanes_[i].backward_of_norm(unit, half);
    }
    for (std::size_t i = 0; i < batches_.size(); ++i) lanes_[i].first_weights(unit, half, write_of(i, write));
  }
  for (std::size_t i = 0; i < batches_.size(); ++i) lanes_[i].vectors(unit, write_of(i, write));
}

void TensorLayers::embed_backward(Write write) {
  const auto mark = timeline_.mark(Pass::embed_backward, 0);
  timeline_.comes_to("backward of the embedding");
  for (std::size_t i = 0; i < batches_.size(); ++i) {
    const Write wte = parts_.layout().config().tied ? Write::accumulate : write_of(i, write);
    lanes_[i].embed_backward(batches_[i].tokens, wte, write_of(i, write));
  }
}

StateSlice TensorLayers::last_local() const {
  const TensorLane& lane = lanes_[batches_.size() > 1 ? 1 : 0];
  const at::Tensor values = lane.newest().view({-1});
  return {Purpose::workspace, 0, Segment::sharded, {0, values.numel()}, in_tensor(values)};
}

}  // namespace sc
