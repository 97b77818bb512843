#include "offload.h"

#include <algorithm>

namespace sc {

// One optimizer step. New in this lesson: the step's sums go on to the host (leave), whose AdamW updates
// (post_update, tell_norm), and the next forward fetches parameters from there (fetch_params). A piece is a
// part of this rank's slice of a unit: the host updates piece by piece.
StepResult Offload::train_step(std::span<const Batch> micro_batches) {
  before_ = context_.copies.issued();
  // Posted before its gradients exist: the host updates a piece when its gradient and the norm have come.
  post_update();
  release_params();
  sums_.zero_();
  for (std::size_t j = 0; j < micro_batches.size(); ++j) {
    const Batch& batch = micro_batches[j];
    // Full gradients are always fresh. Slices add them up, and have the step's sum after the last one.
    const Write slice = j == 0 ? Write::overwrite : Write::accumulate;
    const bool last = j + 1 == micro_batches.size();
    forward(batch, j == 0);
    // The gradients of the micro-batch before may still be leaving the buffers that head writes.
    wait_reduced(0);
    wait_reduced(layout_.last_unit());
    // Head computes the loss and the gradients of the last block's output, of its own matrix and of ln_f.
    passes_.head(batch, params_full_, grads_full_, Write::overwrite, sums_);
    reduce_grads(layout_.last_unit(), slice, last);
    // The last block comes first: it is still in its buffer. While block `unit` computes, the parameters of
    // those below it arrive and the gradients of the one above it leave.
    for (int unit = layout_.num_blocks(), next = unit; unit >= 1; --unit) {
      while (next > std::max<std::int64_t>(1, unit - options_.prefetch)) gather_params(--next);
      wait_gathered(unit);
      passes_.backward_input(unit, params_full_[unit]);
      leave(unit + 1);
      // What block unit + 2 computed must have left the buffer before this block writes there.
      wait_reduced(unit);
      passes_.backward_weights(unit, grads_full_[unit], Write::overwrite);
      reduce_grads(unit, slice, last);
    }
    // A tied head has written its part of unit 0's gradient; the embedding adds its own.
    passes_.embed_backward(batch, grads_full_[0], Write::overwrite);
    reduce_grads(0, slice, last);
    leave(1);
    leave(0);
  }
  global_norm();
  // The states of `resident` units stay on the device.
  for (int unit = 0; unit < options_.resident; ++unit) step_shard(unit);
  tell_norm();
  return {sums_, context_.scalars.grad_norm};
}

// [anchor: pull]
// While one unit computes, the next `prefetch` are on their way. A block's buffer is free when the block has
// computed: the gather that takes it over starts after the work issued so far.
// In a step's first micro-batch (fetch) parameters come up from the host. due() counts the updates that they
// must have had: all that were posted before this step, or one less with update=delayed. A unit that has had
// them is fetched ahead; forward waits only for the one it has come to.
void Offload::forward(const Batch& batch, bool fetch) {
  const int last = layout_.last_unit();
  for (int unit = 0, fetched = fetch ? 0 : last + 1, next = 0; unit <= last; ++unit) {
    while (fetched <= last && (fetched <= unit || (options_.overlap && optimizer_->updated(fetched, due()))))
      fetch_params(fetched++);
    while (next <= std::min<std::int64_t>(last, unit + options_.prefetch) &&
           (next <= unit || (next < fetched && arrived(next))))
      gather_params(next++);
    wait_gathered(unit);
    passes_.forward(unit, batch, params_full_[unit]);
  }
}

void Offload::forward_loss(const Batch& batch, at::Tensor& sums) {
  forward(batch);
  passes_.head_loss(batch, params_full_, sums);
}

// [anchor: wait-for-the-host]
// Only here does a forward wait for an update: until each piece of the unit has had due() of them. The device
// waits for the copies that start here where it gathers the unit.
void Offload::fetch_params(int unit) {
  for (const std::size_t i : optimizer_->pieces_of(unit)) {
    if (const std::shared_ptr<const HostPiece> work = optimizer_->wait(i, due()))
      context_.timeline.add({Pass::update, unit}, work->began_at(), work->ended_at());
    Ticket ticket = copy_up(i, before_);
    optimizer_->sent(i, ticket.end());
    if (!options_.overlap) ticket.wait();
    arriving_[unit].push_back(std::move(ticket));
  }
}

// This step has not read the piece's place on the device: the copy starts after the work of earlier steps.
Ticket Offload::copy_up(std::size_t i, const Copies::After& after) {
  const Piece& p = optimizer_->pieces()[i];
  at::Tensor on_device = params_on_device(p);
  return context_.copies.to_device(params_on_host(i), on_device, {OpPurpose::parameters, p.unit}, {}, after);
}

// Every rank's slice goes to all, into the unit's buffer, unless the unit is there still.
void Offload::gather_params(int unit) {
  int& there = in_buffer_[params_buffer_[unit]];
  if (there == unit) return;
  wait_arrived(unit);
  context_.timeline.gives_up_params(there);
  there = unit;
  gathered_[unit] = context_.comm.all_gather(slices_[unit].params, params_full_[unit].sharded,
                                             {OpPurpose::parameters, unit});
}

// The sum of a slice goes to its owner, out of the full gradient, whose memory is free when it has left.
void Offload::reduce_grads(int unit, Write write, bool last) {
  const std::size_t buffer = grads_buffer_[unit];
  PendingSum& pending = in_flight_[buffer];
  at::Tensor& sum = pending.lands_in(slices_[unit].grads, scratch_[buffer], write);
  pending.ticket = context_.comm.reduce_scatter(grads_full_[unit].sharded, sum, {OpPurpose::gradients, unit});
  complete_[buffer] = last ? unit : kNoUnit;
}

// [anchor: gradient-leaves]
// Called one block after reduce_grads(unit), when the sum has come. After the last micro-batch that is the
// step's sum: the owner squares it for the norm, and sends it to the host piece by piece.
void Offload::leave(int unit) {
  const std::size_t buffer = grads_buffer_[unit];
  in_flight_[buffer].wait();
  if (complete_[buffer] != unit) return;
  square(unit);
  // Updates count from 0, so this step's has the number of those that earlier steps have posted.
  const std::int64_t update = clock_.posted(step_);
  for (const std::size_t i : optimizer_->pieces_of(unit)) {
    at::Tensor landing = host_[i].grads[update % 2];
    Ticket ticket = context_.copies.to_host(grads_on_device(optimizer_->pieces()[i]), landing,
                                            {OpPurpose::gradients, unit});
    optimizer_->lands(i, update, landing, ticket.end());
    if (!options_.overlap) ticket.end().wait();
    leaving_[buffer].push_back(std::move(ticket));
  }
}

// Every rank squares the slices that it owns, so each element counts once. The sum over ranks is the mean
// already: the divisor of the loss was the *global* batch's tokens (Batch::scale).
void Offload::global_norm() {
  const auto mark = context_.timeline.mark(Pass::norm);
  add_squares();
  finish_sums(sums_);
  Ticket ticket = context_.comm.all_reduce(sums_, {OpPurpose::sums});
  summed_ = ticket.end();
  ticket.wait();
  global_norm_and_clip(sums_, context_.shape.workload.optim.clip, context_.scalars);
}

// [anchor: update-on-the-host]
// Returns at once: the host will update each piece when its gradient has landed and the norm is known.
// Where the norm changes nothing, or is guessed (update=early), the host does not wait for it; where the
// guess was wrong it makes the update again.
void Offload::post_update() {
  const std::int64_t update = clock_.posted(step_);
  LandedScalars guess;
  if (norm_ != NormIs::needed) guess = scalars_.send_guess(context_, update);
  optimizer_->post({clock_.after_sends(step_), norm_, guess});
}

// [anchor: norm-known]
// With the norm known, learning rate, step and clip factor go to the host.
// An update that needs no norm got them from post_update().
void Offload::tell_norm() {
  const std::int64_t update = clock_.posted(step_++);
  const bool there = norm_ == NormIs::not_needed;
  optimizer_->norm_known(
      update, there ? LandedScalars{summed_, scalars_.of(update)} : scalars_.send(context_, update));
  if (options_.overlap) return;
  for (std::size_t i = 0; i < host_.size(); ++i) optimizer_->wait(i, update + 1);
}

}  // namespace sc
