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
    const Write slice = j == 0 ? Write::overwrite : Write::accumulate;  // full gradients are always fresh
    forward(batch);
    wait_reduced(0);  // the micro-batch before may still be on its way out of them
    wait_reduced(layout_.last_unit());
    passes_.head(batch, params_full_, grads_full_, Write::overwrite,
                 sums_);  // loss; gradients of x, head, ln_f
    reduce_grads(layout_.last_unit(), slice);
    // [anchor: gather-again]
    // Last block first; it is still in its buffer. While block `unit` computes, the parameters of those below
    // it arrive and the gradients of the one above it leave.
    for (int unit = layout_.num_blocks(), next = unit; unit >= 1; --unit) {
      while (next > std::max<std::int64_t>(1, unit - options_.prefetch)) gather_params(--next);
      wait_gathered(unit);
      passes_.backward_input(unit, params_full_[unit]);
      wait_reduced(unit);  // what block unit + 2 computed must have left
      if (j + 1 == micro_batches.size() && unit + 2 <= layout_.num_blocks()) sum_replicas(unit + 2);
      passes_.backward_weights(unit, grads_full_[unit], Write::overwrite);
      reduce_grads(unit, slice);
    }
    passes_.embed_backward(batch, grads_full_[0], Write::overwrite);  // the tied head opened it
    reduce_grads(0, slice);
  }
  for (int unit = layout_.last_unit(); unit >= 0; --unit) {
    wait_reduced(unit);
    if (unit <= 2 || unit == layout_.last_unit()) sum_replicas(unit);
  }
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
// Every rank's slice to all, into the unit's buffer, unless it is there still.
void Zero3::gather_params(int unit) {
  if (!params_full_[unit].sharded.defined()) return;
  int& resident = resident_[params_buffer_[unit]];
  if (resident == unit) return;
  context_.timeline.gives_up_params(resident);
  resident = unit;
  gathered_[unit] = shards_.all_gather(slices_of(unit)[0].params, params_full_[unit].sharded,
                                       {OpPurpose::parameters, unit});
}

void Zero3::wait_gathered(int unit) {
  gathered_[unit].wait();
  published_[unit].wait();
}

// What is in the buffers is from before the update, or from an evaluation.
void Zero3::release_params() {
  for (int& resident : resident_) {
    context_.timeline.gives_up_params(resident);
    resident = -1;
  }
}

// [anchor: reduce-to-the-owner]
// The sum of a slice goes to its owner, out of the full gradient, whose memory is free when it has left.
void Zero3::reduce_grads(int unit, Write write) {
  const std::size_t buffer = grads_buffer_[unit];
  for (const OwnedSlice& s : slices_of(unit)) {
    if (s.empty()) continue;
    PendingSum& pending = in_flight_[buffer][static_cast<std::size_t>(s.segment)];
    at::Tensor& sum = pending.lands_in(s.grads, scratch_[buffer].segment(s.segment), write);
    pending.ticket =
        shards_.reduce_scatter(grads_full_[unit].segment(s.segment), sum, {OpPurpose::gradients, unit});
  }
}

// Afterwards the unit's buffer is free.
void Zero3::wait_reduced(int unit) {
  for (PendingSum& pending : in_flight_[grads_buffer_[unit]]) pending.wait();
}

// [anchor: sum-over-replicas]
// A group has summed its own rows. Once a step its slices meet those of the other groups: that is all that
// they send each other.
void Zero3::sum_replicas(int unit) {
  if (!replicas_) return;
  for (OwnedSlice& s : slices_of(unit))
    if (!s.empty()) summed_.push_back(replicas_->all_reduce(s.grads, {OpPurpose::gradients, unit}));
}

// Every rank squares the slices that it owns, of replicas the first: each element counts once. The sum over
// ranks is the mean already: the divisor of the loss was the *global* batch's tokens (Batch::scale).
void Zero3::global_norm() {
  const auto mark = context_.timeline.mark(Pass::norm);
  for (Ticket& ticket : summed_) ticket.wait();
  summed_.clear();
  if (!replicas_ || replicas_->rank() == Rank{0}) add_sums_of_squares(grads_of(slices_), sums_);
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
