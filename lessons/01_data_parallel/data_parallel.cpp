#include "data_parallel.h"

#include "common/base/check.h"
#include "common/strategy/replica_hash.h"

namespace sc {

// One optimizer step: gradients accumulate locally, and are summed over ranks once, while the last
// micro-batch's backward runs.
StepResult DataParallel::train_step(std::span<const Batch> micro_batches) {
  sums_.zero_();
  for (std::size_t j = 0; j < micro_batches.size(); ++j) {
    const Batch& batch = micro_batches[j];
    const Write write = j == 0 ? Write::overwrite : Write::accumulate;
    const bool last = j + 1 == micro_batches.size();  // only then are the sums complete
    forward(batch);
    passes_.head(batch, params_full_, grads_full_, write, sums_);  // loss; gradients of x, the head's, ln_f's
    if (last) reduce_grads(layout_.last_unit());
    // [anchor: reduce-behind-backward]
    // The last block comes first. While block `unit` computes, the gradients of the blocks above it travel.
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

void DataParallel::forward(const Batch& batch) {
  for (int unit = 0; unit <= layout_.last_unit(); ++unit) passes_.forward(unit, batch, params_full_[unit]);
}

void DataParallel::forward_loss(const Batch& batch, at::Tensor& sums) {
  forward(batch);
  passes_.head_loss(batch, params_full_, sums);
}

// [anchor: reduce-grads]
// Issues every bucket that `unit` completed. Nobody touches those gradients until wait_reduced().
void DataParallel::reduce_grads(int unit) {
  for (Message& bucket : buckets_) {
    if (bucket.ready_after != unit) continue;
    if (grads_bucket_.defined()) convert(bucket);
    bucket.ticket = context_.comm.all_reduce(bucket.sums.defined() ? bucket.sums : bucket.grads,
                                             {OpPurpose::gradients, bucket.unit});
  }
}

void DataParallel::wait_reduced(int unit) {
  for (Message& bucket : buckets_) {
    if (bucket.ready_after == unit) wait(bucket);
  }
}

void DataParallel::wait(Message& bucket) {
  bucket.ticket.wait();
  if (bucket.sums.defined()) bucket.grads.copy_(bucket.sums);
  bucket.sums = at::Tensor();
}

// [anchor: reduce-dtype]
// Gradients of 16 bits may be summed in fp32: a bucket is then converted before and after it travels. There
// is one buffer for that, so one bucket travels at a time; with a buffer per bucket the gradients might as
// well be fp32 (grad_dtype).
void DataParallel::convert(Message& bucket) {
  for (Message& before : buckets_) wait(before);  // which leaves the buffer
  bucket.sums = grads_bucket_.narrow(0, 0, bucket.grads.numel());
  bucket.sums.copy_(bucket.grads);
}

// [anchor: global-norm]
// Every rank now holds the same summed gradient, but squares only its own slice, so that each element is
// counted once, as in lesson 02, where a slice is all that a rank has. The divisor of the loss was the
// *global* batch's tokens (Batch::scale), so the sum over ranks is already the mean and nothing is divided
// here.
void DataParallel::global_norm() {
  const auto mark = context_.timeline.mark(Pass::norm);
  std::vector<at::Tensor> mine;
  for (int unit = 0; unit < layout_.num_units(); ++unit)
    mine.push_back(slice_of_rank(layout_, unit, context_.comm.rank()).of_unit(grads_full_[unit].sharded));
  add_sums_of_squares(mine, sums_);
  finish_sums(sums_);
  context_.comm.all_reduce(sums_, {OpPurpose::sums}).wait();
  global_norm_and_clip(sums_, context_.shape.workload.optim.clip, context_.scalars);
}

// [anchor: same-step-everywhere]
// The same numbers in, the same arithmetic: replicas stay equal to the bit without ever exchanging a
// parameter.
void DataParallel::step_unit(int unit) {
  const auto mark = context_.timeline.mark(Pass::update, unit);
  OwnedSlice& s = slices_[unit];
  const Workload& w = context_.shape.workload;
  adamw_step(hyper_of(w.optim), context_.scalars, layout_.decay_ranges(unit, s.segment, s.range), s.grads,
             s.master, s.momentum, s.variance, w.precision.has_master() ? &s.params : nullptr);
}

// [anchor: verify-replicas]
void DataParallel::after_step(std::int64_t step) {
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
