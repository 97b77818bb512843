#include "tensor_parallel.h"

#include "common/base/check.h"
#include "common/strategy/replica_hash.h"

namespace sc {

// One optimizer step. Every rank computes every micro-batch with its part of each matrix; the messages are in
// TensorLayers.
StepResult TensorParallel::train_step(std::span<const Batch> micro_batches) {
  sums_.zero_();
  micro_batches_ = micro_batches;
  const auto lanes = static_cast<std::size_t>(options_.lanes);  // micro-batches that take turns
  for (std::size_t j = 0; j < micro_batches.size(); j += lanes) {
    const Write write = j == 0 ? Write::overwrite : Write::accumulate;
    forward(micro_batches.subspan(j, lanes));
    layers_.head(write, sums_);  // loss; gradients of x, the head's, ln_f's
    for (int unit = layout_.num_blocks(); unit >= 1; --unit) layers_.backward_block(unit, write);
    layers_.embed_backward(write);  // the tied head opened it, this completes it
  }
  sum_replicated();
  global_norm();
  for (OwnedSlice& slice : slices_) step_slice(slice);
  return {sums_, context_.scalars.grad_norm};
}

void TensorParallel::forward(std::span<const Batch> batches) {
  layers_.embed(batches);
  for (int unit = 1; unit <= layout_.num_blocks(); ++unit) layers_.forward_block(unit);
}

void TensorParallel::forward_loss(const Batch& batch, at::Tensor& sums) {
  forward({&batch, 1});
  layers_.head(Write::overwrite, sums, /*backward=*/false);
}

// [anchor: seen-by-parts]
// Norms, the second matrices' biases and positions are on every rank, and each has seen its own tokens only:
// their gradients are summands. Where every rank has seen all tokens (tokens=whole) they are equal already,
// and a sum would count them t times.
void TensorParallel::sum_replicated() {
  context_.timeline.comes_to("the sum of what every rank has");
  if (sizes_.split()) context_.comm.all_reduce(replicated_grads_, {OpPurpose::gradients}).wait();
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

void TensorParallel::step_slice(OwnedSlice& s) {
  const auto mark = context_.timeline.mark(Pass::update, s.unit);
  const Workload& w = context_.shape.workload;
  adamw_step(hyper_of(w.optim), context_.scalars, layout_.decay_ranges(s.unit, s.segment, s.range), s.grads,
             s.master, s.momentum, s.variance, w.precision.has_master() ? &s.params : nullptr);
}

// [anchor: verify-replicas]
// Two errors make no noise: copies that part, and ranks that read different rows.
void TensorParallel::after_step(std::int64_t step) {
  if (!verifies_after(step, options_.verify_replicas)) return;
  const int units = layout_.num_units();
  for (int unit = 0; unit < units; ++unit)
    if (params_[unit].whole.defined()) hashes_[unit].fill_(replica_hash(params_[unit].whole));
  std::uint64_t tokens = 0;
  for (const Batch& batch : micro_batches_)
    tokens = 31 * tokens + static_cast<std::uint64_t>(replica_hash(batch.tokens));
  hashes_[units].fill_(static_cast<std::int64_t>(tokens));
  context_.comm.all_gather(hashes_, hashes_of_all_, {OpPurpose::hashes}).wait();
  const at::Tensor of_all = hashes_of_all_.view({-1, units + 1});
  for (int unit = units; unit >= 0; --unit) {  // other rows make other parameters: they come first
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
