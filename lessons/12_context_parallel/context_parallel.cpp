#include "context_parallel.h"

#include "common/base/check.h"
#include "common/strategy/replica_hash.h"

namespace sc {

// One optimizer step. Every rank computes every micro-batch, of each row its own tokens; the messages of
// attention are in ContextAttention.
StepResult ContextParallel::train_step(std::span<const Batch> micro_batches) {
  sums_.zero_();
  for (std::size_t j = 0; j < micro_batches.size(); ++j) {
    const Batch batch = own_tokens(micro_batches[j], passes_.gpt().sizes(), own_);  // [anchor: my-tokens]
    const Write write = j == 0 ? Write::overwrite : Write::accumulate;
    const bool last = j + 1 == micro_batches.size();  // only then are the sums complete
    forward(batch);
    passes_.head(batch, params_full_, grads_full_, write, sums_);  // loss; gradients of x, the head's, ln_f's
    if (last) reduce_grads(layout_.last_unit());
    // Last block first. While block `unit` computes, the gradients of the blocks above it travel.
    for (int unit = layout_.num_blocks(); unit >= 1; --unit) {
      passes_.backward_input(unit, params_full_[unit]);
      passes_.backward_weights(unit, grads_full_[unit], write);
      if (last) reduce_grads(unit);
    }
    passes_.embed_backward(batch, grads_full_[0], write);  // adds to a tied head's part
    if (last) reduce_grads(0);
  }
  for (int unit = layout_.last_unit(); unit >= 0; --unit) wait_reduced(unit);
  global_norm();
  for (int unit = 0; unit < layout_.num_units(); ++unit) step_unit(unit);
  return {sums_, context_.scalars.grad_norm};
}

void ContextParallel::forward(const Batch& batch) {
  for (int unit = 0; unit <= layout_.last_unit(); ++unit) passes_.forward(unit, batch, params_full_[unit]);
}

void ContextParallel::forward_loss(const Batch& batch, at::Tensor& sums) {
  const Batch own = own_tokens(batch, passes_.gpt().sizes(), own_);
  forward(own);
  passes_.head_loss(own, params_full_, sums);
}

// Each rank has seen its own tokens only: its gradient of a parameter is one summand of c.
void ContextParallel::reduce_grads(int unit) {
  reduced_[unit] = context_.comm.all_reduce(grads_full_[unit].sharded, {OpPurpose::gradients, unit});
}

// As in lesson 01: each element is squared by one rank.
void ContextParallel::global_norm() {
  const auto mark = context_.timeline.mark(Pass::norm);
  std::vector<at::Tensor> mine;
  for (int unit = 0; unit < layout_.num_units(); ++unit)
    mine.push_back(slice_of_rank(layout_, unit, context_.comm.rank()).of_unit(grads_full_[unit].sharded));
  add_sums_of_squares(mine, sums_);
  finish_sums(sums_);
  context_.comm.all_reduce(sums_, {OpPurpose::sums}).wait();
  global_norm_and_clip(sums_, context_.shape.workload.optim.clip, context_.scalars);
}

void ContextParallel::step_unit(int unit) {
  const auto mark = context_.timeline.mark(Pass::update, unit);
  adamw_step(context_, layout_, slices_[unit]);
}

void ContextParallel::after_step(std::int64_t step) {
  if (!verifies_after(step, options_.verify_replicas)) return;
  hash_.fill_(replica_hash(params_arena_));
  context_.comm.all_gather(hash_, hashes_full_, {OpPurpose::hashes}).wait();
  const int odd = first_different(hashes_full_);
  if (odd >= 0) {
    throw ClaimError("step " + std::to_string(step) + ": rank " + std::to_string(odd) +
                     "'s parameters differ from rank 0's: replicas must stay equal to the bit");
  }
  ++replica_checks_;
}

}  // namespace sc
