#include "zero1.h"

#include <algorithm>

namespace sc {
namespace {

// The number of units whose gathers are on their way before forward comes to them. If all were issued at
// once, they would be a GPU's first work in a step, and forward's first would wait for most of them.
constexpr int kAhead = 2;

}  // namespace

// One optimizer step. At its beginning each rank has updated its slice of the parameters only.
StepResult Zero1::train_step(std::span<const Batch> micro_batches) {
  sums_.zero_();
  for (std::size_t j = 0; j < micro_batches.size(); ++j) {
    const Batch& batch = micro_batches[j];
    const Write write = j == 0 ? Write::overwrite : Write::accumulate;
    const bool last = j + 1 == micro_batches.size();  // only then are the sums complete
    forward(batch, j == 0);
    passes_.head(batch, params_full_, grads_full_, write, sums_);  // loss; gradients of x, the head's, ln_f's
    if (last) reduce_grads(layout_.last_unit());
    // The last block comes first. While block `unit` computes, the gradients of the blocks above it travel.
    for (int unit = layout_.num_blocks(); unit >= 1; --unit) {
      passes_.backward_input(unit, params_full_[unit]);
      passes_.backward_weights(unit, grads_full_[unit], write);
      if (last) reduce_grads(unit);
    }
    passes_.embed_backward(batch, grads_full_[0], write);  // the tied head opened it, this completes it
    if (last) reduce_grads(0);
  }
  for (int unit = layout_.last_unit(); unit >= 0; --unit) wait_reduced(unit);
  global_norm();
  for (int unit = 0; unit < layout_.num_units(); ++unit) step_shard(unit);
  return {sums_, context_.scalars.grad_norm};
}

// [anchor: wait-where-used]
// A unit's parameters may still be on their way; whoever uses them first waits, for that unit alone. With
// `publish`, in a step's first micro-batch, the slices that the last step has updated go to all ranks.
void Zero1::forward(const Batch& batch, bool publish) {
  const int last = layout_.last_unit();
  for (int unit = 0, next = 0; unit <= last; ++unit) {
    while (publish && next <= std::min(last, unit + kAhead)) publish_params(next++);
    published_[unit].wait();
    passes_.forward(unit, batch, params_full_[unit]);
  }
}

void Zero1::forward_loss(const Batch& batch, at::Tensor& sums) {
  forward(batch, false);
  passes_.head_loss(batch, params_full_, sums);
}

// [anchor: publish]
// Half of lesson 01's all-reduce, of parameters instead of gradients: every owner's updated slice goes to
// all.
void Zero1::publish_params(int unit) {
  published_[unit] = context_.comm.all_gather(slices_[unit].params, params_full_[unit].sharded,
                                              {OpPurpose::parameters, unit});
  if (!options_.overlap) published_[unit].wait();
}

// [anchor: reduce-to-the-owner]
// The other half of lesson 01's all-reduce: the sum of a slice goes to its owner alone, in place. The rest of
// the unit's gradient stays what this rank computed, and nobody reads it any more.
void Zero1::reduce_grads(int unit) {
  reduced_[unit] = context_.comm.reduce_scatter(grads_full_[unit].sharded, slices_[unit].grads,
                                                {OpPurpose::gradients, unit});
  if (!options_.overlap) reduced_[unit].wait();
}

void Zero1::wait_reduced(int unit) { reduced_[unit].wait(); }

// Every rank squares the slices that it owns, so each element counts once. The sum over ranks is already the
// mean: the divisor of the loss was the *global* batch's tokens (Batch::scale).
void Zero1::global_norm() {
  const auto mark = context_.timeline.mark(Pass::norm);
  add_sums_of_squares(grads_of(slices_), sums_);
  finish_sums(sums_);
  context_.comm.all_reduce(sums_, {OpPurpose::sums}).wait();
  global_norm_and_clip(sums_, context_.shape.workload.optim.clip, context_.scalars);
}

// [anchor: step-the-slice]
void Zero1::step_shard(int unit) {
  const auto mark = context_.timeline.mark(Pass::update, unit);
  OwnedSlice& s = slices_[unit];
  const Workload& w = context_.shape.workload;
  adamw_step(hyper_of(w.optim), context_.scalars, layout_.decay_ranges(unit, s.segment, s.range), s.grads,
             s.master, s.momentum, s.variance, w.precision.has_master() ? &s.params : nullptr);
}

// Nothing remembers whether the last step is published already: a step that a graph replays could not say so.
void Zero1::quiet() {
  for (int unit = 0; unit < layout_.num_units(); ++unit) publish_params(unit);
  for (Ticket& ticket : published_) ticket.wait();
}

}  // namespace sc
