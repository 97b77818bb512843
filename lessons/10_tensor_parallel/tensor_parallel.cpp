#include "tensor_parallel.h"

#include <string>

#include "common/base/check.h"
#include "common/strategy/replica_hash.h"

namespace sc {
namespace {

// Where a rank is, for the message of a hang: "forward of block 7's attention".
std::string in_words(const char* pass, int unit, Half half) {
  return std::string(pass) + " of block " + std::to_string(unit) + "'s " +
         (half == Half::attention ? "attention" : "MLP");
}

Write write_of(std::size_t lane, Write write) { return lane == 0 ? write : Write::accumulate; }

}  // namespace

// One optimizer step. Every rank computes every micro-batch with its part of each matrix. A lane computes one
// micro-batch at a time (tensor_lane.h); of two lanes, one's messages travel while the other computes.
StepResult TensorParallel::train_step(std::span<const Batch> micro_batches) {
  sums_.zero_();
  micro_batches_ = micro_batches;
  for (std::size_t j = 0; j < micro_batches.size(); j += lanes_.size()) {
    const std::span<const Batch> batches = micro_batches.subspan(j, lanes_.size());
    const Write write = j == 0 ? Write::overwrite : Write::accumulate;
    forward(batches);
    head(batches, write);  // loss; gradients of x, the head's, ln_f's
    for (int unit = layout().num_blocks(); unit >= 1; --unit) backward_block(unit, write);
    embed_backward(batches, write);  // a tied head wrote wte's gradient, this adds to it
  }
  sum_replicated();
  global_norm();
  for (OwnedSlice& slice : slices_) step_slice(slice);
  return {sums_, context_.scalars.grad_norm};
}

void TensorParallel::forward(std::span<const Batch> batches) {
  embed(batches);
  for (int unit = 1; unit <= layout().num_blocks(); ++unit) forward_block(unit, batches.size() > 1);
}

void TensorParallel::embed(std::span<const Batch> batches) {
  for (std::size_t i = 0; i < batches.size(); ++i) context_.timeline.begin_micro_batch();
  const auto mark = context_.timeline.mark(Pass::forward, 0);
  context_.timeline.comes_to("forward of the embedding");
  for (std::size_t i = 0; i < batches.size(); ++i) lanes_[i].embed(batches[i].tokens);
  lanes_.front().end_embedding();
}

// [anchor: two-halves]
// Attention and MLP make the same calls (tensor_lane.h). With one lane they are those of `one` alone:
//   first_product              waits for the all-gather of all tokens' LayerNorm outputs
//   second_product             starts the reduce-scatter (tokens=whole: all-reduce) of all ranks' summands
//   end_attention, end_block   waits for that sum, and starts the all-gather of the next half's
// A second lane is one call behind the first, so that one's collectives travel during the other's products.
void TensorParallel::forward_block(int unit, bool two) {
  const auto mark = context_.timeline.mark(Pass::forward, unit);
  TensorLane &one = lanes_.front(), &other = lanes_.back();
  context_.timeline.comes_to(in_words("forward", unit, Half::attention));
  one.first_product(unit, Half::attention);
  if (two) unit == 1 ? other.end_embedding() : other.end_block(unit - 1);
  one.second_product(unit, Half::attention);
  if (two) other.first_product(unit, Half::attention);
  one.end_attention(unit);
  if (two) other.second_product(unit, Half::attention);
  context_.timeline.comes_to(in_words("forward", unit, Half::mlp));
  one.first_product(unit, Half::mlp);
  if (two) other.end_attention(unit);
  one.second_product(unit, Half::mlp);
  if (two) other.first_product(unit, Half::mlp);
  one.end_block(unit);
  if (two) other.second_product(unit, Half::mlp);
}

void TensorParallel::head(std::span<const Batch> batches, Write write) {
  const auto mark = context_.timeline.mark(Pass::head, layout().last_unit());
  context_.timeline.comes_to("the head");
  if (batches.size() > 1) lanes_.back().end_block(layout().num_blocks());
  for (std::size_t i = 0; i < batches.size(); ++i)
    lanes_[i].head(batches[i].targets, batches[i].scale, write_of(i, write), sums_);
  for (std::size_t i = 0; i < batches.size(); ++i) lanes_[i].head_backward(write_of(i, write));
}

void TensorParallel::forward_loss(const Batch& batch, at::Tensor& sums) {
  forward({&batch, 1});
  const auto mark = context_.timeline.mark(Pass::head, layout().last_unit());
  lanes_.front().head(batch.targets, /*scale=*/{}, Write::overwrite, sums);
}

// [anchor: behind-the-weights]
// Nobody waits for a gradient of weights, so collectives travel during their products: the sum during the
// second matrix's, the all-gather of the next half's gradient during the first one's.
void TensorParallel::backward_block(int unit, Write write) {
  const auto mark = context_.timeline.mark(Pass::backward, unit);
  for (TensorLane& lane : lanes_) lane.recompute(unit);
  for (const Half half : {Half::mlp, Half::attention}) {
    context_.timeline.comes_to(in_words("backward", unit, half));
    for (TensorLane& lane : lanes_) lane.backward_to_norm(unit, half);
    for (std::size_t i = 0; i < lanes_.size(); ++i) {
      lanes_[i].second_weights(unit, half, write_of(i, write));
      lanes_[i].backward_of_norm(unit, half);
    }
    for (std::size_t i = 0; i < lanes_.size(); ++i) lanes_[i].first_weights(unit, half, write_of(i, write));
  }
  for (std::size_t i = 0; i < lanes_.size(); ++i) lanes_[i].vectors(unit, write_of(i, write));
}

void TensorParallel::embed_backward(std::span<const Batch> batches, Write write) {
  const auto mark = context_.timeline.mark(Pass::embed_backward, 0);
  context_.timeline.comes_to("backward of the embedding");
  for (std::size_t i = 0; i < batches.size(); ++i) {
    const Write wte = layout().config().tied ? Write::accumulate : write_of(i, write);
    lanes_[i].embed_backward(batches[i].tokens, wte, write_of(i, write));
  }
}

// The last micro-batch's gradient of the first block's input, for this rank's tokens.
StateSlice TensorParallel::last_local() const {
  const at::Tensor values = lanes_.back().newest().view({-1});
  return {Purpose::workspace, 0, Segment::sharded, {0, values.numel()}, in_tensor(values)};
}

// [anchor: seen-by-parts]
// Norms, the second matrices' biases and positions are on every rank, and each has seen its own tokens only:
// their gradients are summands. Where every rank has seen all tokens (tokens=whole) they are equal already,
// and a sum would count them once for every rank.
void TensorParallel::sum_replicated() {
  context_.timeline.comes_to("the sum of what every rank has");
  if (parts_.sizes().split()) context_.comm.all_reduce(replicated_grads_, {OpPurpose::gradients}).wait();
}

// [anchor: global-norm]
// Every rank squares what is its own; what each has is squared by the first one alone.
void TensorParallel::global_norm() {
  const auto mark = context_.timeline.mark(Pass::norm);
  context_.timeline.comes_to("the norm");
  std::vector<at::Tensor> mine;
  for (const OwnedSlice& slice : slices_)
    if (slice.segment == Segment::sharded || context_.comm.rank() == Rank{0}) mine.push_back(slice.grads);
  add_sums_of_squares(mine, sums_);
  finish_sums(sums_);
  context_.comm.all_reduce(sums_, {OpPurpose::sums}).wait();
  global_norm_and_clip(sums_, context_.shape.workload.optim.clip, context_.scalars);
}

void TensorParallel::step_slice(OwnedSlice& slice) {
  const auto mark = context_.timeline.mark(Pass::update, slice.unit);
  adamw_step(context_, layout(), slice);
}

// [anchor: verify-replicas]
// Finds two errors that make no noise: copies that diverge, and ranks that read different rows.
void TensorParallel::after_step(std::int64_t step) {
  if (!verifies_after(step, options_.verify_replicas)) return;
  const int units = layout().num_units();
  for (int unit = 0; unit < units; ++unit)
    if (params_[unit].whole.defined()) hashes_[unit].fill_(replica_hash(params_[unit].whole));
  std::uint64_t tokens = 0;
  for (const Batch& batch : micro_batches_)
    tokens = 31 * tokens + static_cast<std::uint64_t>(replica_hash(batch.tokens));
  hashes_[units].fill_(static_cast<std::int64_t>(tokens));
  context_.comm.all_gather(hashes_, hashes_of_all_, {OpPurpose::hashes}).wait();
  const at::Tensor of_all = hashes_of_all_.view({-1, units + 1});
  // Other rows make other parameters, so the tokens' hash, which is the last, is compared first.
  for (int unit = units; unit >= 0; --unit) {
    const int odd = first_different(of_all.select(1, unit).contiguous());
    if (odd < 0) continue;
    const std::string who = "step " + std::to_string(step) + ": rank " + std::to_string(odd);
    throw ClaimError(unit == units
                         ? who + " reads other tokens than rank 0: all tensor ranks need the same rows"
                         : who + "'s copy of the norms and biases of unit " + std::to_string(unit) +
                               " differs from rank 0's: replicas must stay equal to the bit");
  }
  ++replica_checks_;
}

}  // namespace sc
