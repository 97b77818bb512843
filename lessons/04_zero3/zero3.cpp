#include "zero3.h"

#include <algorithm>

namespace sc {

// One optimizer step. Every micro-batch gathers what it computes with, and gives its gradients away.
StepResult Zero3::train_step(std::span<const Batch> micro_batches) {
  publish_params();
  release_params();
  sums_.zero_();
  for (std::size_t j = 0; j < micro_batches.size(); ++j) {
    const Batch& batch = micro_batches[j];
    // Full gradients are always fresh. Slices add them up, and have the step's sum after the last
    // micro-batch.
    const Write slice = j == 0 ? Write::overwrite : Write::accumulate;
    const bool last = j + 1 == micro_batches.size();
    forward(batch);
    // The gradients of the micro-batch before may still be leaving the buffers that head writes.
    wait_reduced(0);
    wait_reduced(layout_.last_unit());
    // Head computes the loss and the gradients of the last block's output, of its own matrix and of ln_f.
    passes_.head(batch, params_full_, grads_full_, Write::overwrite, sums_);
    reduce_grads(layout_.last_unit(), slice, last);
    // [anchor: gather-again]
    // The last block comes first: it is still in its buffer. While block `unit` computes, the parameters of
    // those below it arrive and the gradients of the one above it leave.
    for (int unit = layout_.num_blocks(), next = unit; unit >= 1; --unit) {
      while (next > std::max<std::int64_t>(1, unit - options_.prefetch)) gather_params(--next);
      wait_gathered(unit);
      passes_.backward_input(unit, params_full_[unit]);
      // What block unit + 2 computed must have left the buffer before this block writes there.
      wait_reduced(unit);
      passes_.backward_weights(unit, grads_full_[unit], Write::overwrite);
      reduce_grads(unit, slice, last);
    }
    // A tied head has written its part of unit 0's gradient; the embedding adds its own.
    passes_.embed_backward(batch, grads_full_[0], Write::overwrite);
    reduce_grads(0, slice, last);
  }
  for (int unit = layout_.last_unit(); unit >= 0; --unit) wait_reduced(unit);
  global_norm();
  for (int unit = 0; unit < layout_.num_units(); ++unit) step_shard(unit);
  return {sums_, context_.scalars.grad_norm};
}

// [anchor: gather-use-release]
// While one unit computes, the next `prefetch` are on their way. A block's buffer is free when the block has
// computed: the gather that takes it over starts after the work issued so far.
void Zero3::forward(const Batch& batch) {
  const int last = layout_.last_unit();
  for (int unit = 0, next = 0; unit <= last; ++unit) {
    while (next <= std::min<std::int64_t>(last, unit + options_.prefetch)) gather_params(next++);
    wait_gathered(unit);
    passes_.forward(unit, batch, params_full_[unit]);
  }
}

void Zero3::forward_loss(const Batch& batch, at::Tensor& sums) {
  forward(batch);
  passes_.head_loss(batch, params_full_, sums);
}

// [anchor: gather]
// Every rank's slice goes to all, into the unit's buffer, unless the unit is still there.
void Zero3::gather_params(int unit) {
  if (!params_full_[unit].sharded.defined()) return;
  int& there = in_buffer_[params_buffer_[unit]];
  if (there == unit) return;
  context_.timeline.gives_up_params(there);
  there = unit;
  gathered_[unit] = shards_.all_gather(slices_of(unit)[0].params, params_full_[unit].sharded,
                                       {OpPurpose::parameters, unit});
}

// Empties the buffers: what is in them is from before the update, or from an evaluation.
void Zero3::release_params() {
  for (int& there : in_buffer_) {
    context_.timeline.gives_up_params(there);
    there = kNoUnit;
  }
}

// [anchor: reduce-to-the-owner]
// The sum of a slice goes to its owner, out of the full gradient, whose memory is free when it has left.
void Zero3::reduce_grads(int unit, Write write, bool last) {
  const std::size_t buffer = grads_buffer_[unit];
  for (const OwnedSlice& s : slices_of(unit)) {
    if (s.empty()) continue;
    PendingSum& pending = in_flight_[buffer][static_cast<std::size_t>(s.segment)];
    at::Tensor& sum = pending.lands_in(s.grads, scratch_[buffer].segment(s.segment), write);
    pending.ticket =
        shards_.reduce_scatter(grads_full_[unit].segment(s.segment), sum, {OpPurpose::gradients, unit});
  }
  complete_[buffer] = last ? unit : kNoUnit;
}

// Waits until the unit's buffer is free: what was in it has been summed into the slices.
void Zero3::wait_reduced(int unit) {
  const std::size_t buffer = grads_buffer_[unit];
  for (PendingSum& pending : in_flight_[buffer]) pending.wait();
  sum_replicas(buffer);
}

// Every rank squares the slices that it owns, so each element counts once. The sum over ranks is already the
// mean: the divisor of the loss was the *global* batch's tokens (Batch::scale).
void Zero3::global_norm() {
  const auto mark = context_.timeline.mark(Pass::norm);
  add_squares();
  finish_sums(sums_);
  context_.comm.all_reduce(sums_, {OpPurpose::sums}).wait();
  global_norm_and_clip(sums_, context_.shape.workload.optim.clip, context_.scalars);
}

void Zero3::step_shard(int unit) {
  const auto mark = context_.timeline.mark(Pass::update, unit);
  const Workload& w = context_.shape.workload;
  for (OwnedSlice& s : slices_of(unit)) {
    if (s.empty()) continue;
    adamw_step(hyper_of(w.optim), context_.scalars, layout_.decay_ranges(unit, s.segment, s.range), s.grads,
               s.master, s.momentum, s.variance, w.precision.has_master() ? &s.params : nullptr);
  }
}

}  // namespace sc
