#include "zero2.h"

#include <algorithm>

#include "grad_buffers.h"

namespace sc {
namespace {

// The number of units whose gathers are on their way before forward comes to them, as in lesson 02.
constexpr int kAhead = 2;

}  // namespace

// One optimizer step. At its beginning each rank has updated its slice of the parameters only.
StepResult Zero2::train_step(std::span<const Batch> micro_batches) {
  sums_.zero_();
  for (std::size_t j = 0; j < micro_batches.size(); ++j) {
    const Batch& batch = micro_batches[j];
    const Write slice = j == 0 ? Write::overwrite : Write::accumulate;  // full gradients are always fresh
    forward(batch, j == 0);
    wait_reduced(0);  // the micro-batch before may still be on its way out of them
    wait_reduced(layout_.last_unit());
    passes_.head(batch, params_full_, grads_full_, Write::overwrite,
                 sums_);  // loss; gradients of x, head, ln_f
    reduce_grads(layout_.last_unit(), slice);
    // [anchor: reduce-as-you-go]
    // The last block comes first. A block's gradient leaves as soon as it is complete, and its memory is for
    // the block two below.
    for (int unit = layout_.num_blocks(); unit >= 1; --unit) {
      passes_.backward_input(unit, params_full_[unit]);
      // [anchor: wait-before-reuse]
      wait_reduced(unit);  // what block unit + 2 computed must have left
      passes_.backward_weights(unit, grads_full_[unit], Write::overwrite);
      reduce_grads(unit, slice);
    }
    passes_.embed_backward(batch, grads_full_[0], Write::overwrite);  // the tied head opened it
    reduce_grads(0, slice);
  }
  wait_all_reduced();
  global_norm();
  for (int unit = 0; unit < layout_.num_units(); ++unit) step_shard(unit);
  return {sums_, context_.scalars.grad_norm};
}

void Zero2::forward(const Batch& batch, bool publish) {
  const int last = layout_.last_unit();
  for (int unit = 0, next = 0; unit <= last; ++unit) {
    while (publish && next <= std::min(last, unit + kAhead)) publish_params(next++);
    published_[unit].wait();
    passes_.forward(unit, batch, params_full_[unit]);
  }
}

void Zero2::forward_loss(const Batch& batch, at::Tensor& sums) {
  forward(batch, false);
  passes_.head_loss(batch, params_full_, sums);
}

// Every owner's updated slice goes to all ranks.
void Zero2::publish_params(int unit) {
  published_[unit] = context_.comm.all_gather(slices_[unit].params, params_full_[unit].sharded,
                                              {OpPurpose::parameters, unit});
  if (!options_.overlap) published_[unit].wait();
}

// [anchor: reduce-to-the-owner]
// The sum of a slice goes to its owner, out of the full gradient, whose memory is free when it has left. It
// goes into the slice, or with later micro-batches into scratch, and is added when it has arrived.
void Zero2::reduce_grads(int unit, Write write) {
  const at::Tensor& full = grads_full_[unit].sharded;
  if (bucket_) {
    bucket_->add(unit, full, write);
  } else {
    const std::size_t buffer = grad_buffer_of(layout_, unit);
    PendingSum& pending = in_flight_[buffer];
    pending.ticket = context_.comm.reduce_scatter(
        full, pending.lands_in(slices_[unit].grads, scratch_[buffer], write), {OpPurpose::gradients, unit});
  }
  if (!options_.overlap) wait_all_reduced();
}

// Waits until the unit's buffer is free.
void Zero2::wait_reduced(int unit) { in_flight_[grad_buffer_of(layout_, unit)].wait(); }

void Zero2::wait_all_reduced() {
  for (PendingSum& pending : in_flight_) pending.wait();
  if (bucket_) bucket_->wait();
}

// Every rank squares the slices that it owns, so each element counts once. The sum over ranks is already the
// mean: the divisor of the loss was the *global* batch's tokens (Batch::scale).
void Zero2::global_norm() {
  const auto mark = context_.timeline.mark(Pass::norm);
  add_sums_of_squares(grads_of(slices_), sums_);
  finish_sums(sums_);
  context_.comm.all_reduce(sums_, {OpPurpose::sums}).wait();
  global_norm_and_clip(sums_, context_.shape.workload.optim.clip, context_.scalars);
}

void Zero2::step_shard(int unit) {
  const auto mark = context_.timeline.mark(Pass::update, unit);
  OwnedSlice& s = slices_[unit];
  const Workload& w = context_.shape.workload;
  adamw_step(hyper_of(w.optim), context_.scalars, layout_.decay_ranges(unit, s.segment, s.range), s.grads,
             s.master, s.momentum, s.variance, w.precision.has_master() ? &s.params : nullptr);
}

// Nothing remembers whether the last step is published already: a step that a graph replays could not say so.
void Zero2::quiet() {
  for (int unit = 0; unit < layout_.num_units(); ++unit) publish_params(unit);
  for (Ticket& ticket : published_) ticket.wait();
}

}  // namespace sc
