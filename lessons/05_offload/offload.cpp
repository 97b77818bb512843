#include "offload.h"

#include <algorithm>

namespace sc {

// One optimizer step. Gradients leave for the host as soon as they are summed; forward pulls parameters from
// there when it comes to them.
StepResult Offload::train_step(std::span<const Batch> micro_batches) {
  units_.release();
  before_ = context_.copies.issued();
  if (norm_ != NormIs::known) post_update();
  sums_.zero_();
  for (std::size_t j = 0; j < micro_batches.size(); ++j) {
    const Batch& batch = micro_batches[j];
    const Write slice = j == 0 ? Write::overwrite : Write::accumulate;  // full gradients are always fresh
    const bool last = j + 1 == micro_batches.size();                    // only then is the sum complete
    forward(batch, j == 0);
    units_.wait_left(0);
    units_.wait_left(layout_.last_unit());
    passes_.head(batch, units_.params(), units_.grads(), Write::overwrite,
                 sums_);  // loss; gradients of x, head, ln_f
    reduce_grads(layout_.last_unit(), slice);
    // Last block first. While block `unit` computes, the gradient of the one above it is summed, and that of
    // the one above that travels to the host.
    for (int unit = layout_.num_blocks(), next = unit; unit >= 1; --unit) {
      while (next > std::max<std::int64_t>(1, unit - options_.prefetch)) gather_params(--next);
      units_.wait_gathered(unit);
      passes_.backward_input(unit, units_.params()[unit]);
      leave(unit + 1, last);
      units_.wait_left(unit);  // what block unit + 2 computed must have left
      passes_.backward_weights(unit, units_.grads()[unit], Write::overwrite);
      reduce_grads(unit, slice);
    }
    passes_.embed_backward(batch, units_.grads()[0], Write::overwrite);  // the tied head opened it
    reduce_grads(0, slice);
    leave(1, last);
    leave(0, last);
  }
  const OpEnd summed = global_norm();
  units_.step_resident(context_, layout_);
  norm_ == NormIs::known ? post_update() : confirm_update(summed);
  end_step();
  return {sums_, context_.scalars.grad_norm};
}

// [anchor: pull]
// fetch: the step's first micro-batch. What has been updated is fetched at once; forward waits for the host
// only where it comes to a unit that has not.
void Offload::forward(const Batch& batch, bool fetch) {
  const int last = layout_.last_unit();
  for (int unit = 0, fetched = fetch ? 0 : last + 1, gathered = 0; unit <= last; ++unit) {
    while (fetched <= last && (fetched <= unit || (options_.overlap && optimizer_->updated(fetched, due()))))
      fetch_params(fetched++);
    while (gathered <= std::min<std::int64_t>(last, unit + options_.prefetch) &&
           (gathered <= unit || (gathered < fetched && units_.arrived(gathered))))
      gather_params(gathered++);
    units_.wait_gathered(unit);
    passes_.forward(unit, batch, units_.params()[unit]);
  }
}

void Offload::forward_loss(const Batch& batch, at::Tensor& sums) {
  forward(batch, false);
  passes_.head_loss(batch, units_.params(), sums);
}

// [anchor: wait-for-the-host]
// The only place where a forward meets an update: the host waits until the unit's pieces have been updated.
// The device waits for their arrival where the unit is gathered.
void Offload::fetch_params(int unit) {
  for (const std::size_t i : optimizer_->pieces_of(unit)) {
    if (const std::shared_ptr<const HostPiece> work = optimizer_->wait(i, due()))
      context_.timeline.add({Pass::update, unit}, work->began_at(), work->ended_at());
    Ticket ticket = send_params(i, before_);
    optimizer_->sent(i, ticket.end());
    if (!options_.overlap) ticket.wait();
    units_.arrives(unit, std::move(ticket));
  }
}

// From the host to their place on the device, which nothing of this step has read: the copy does not wait for
// the units before it.
Ticket Offload::send_params(std::size_t piece, const Copies::After& after) {
  const Piece& p = optimizer_->pieces()[piece];
  at::Tensor on_device = units_.params_of(p);
  return context_.copies.to_device(params_of(piece), on_device, {OpPurpose::parameters, p.unit}, {}, after);
}

// Every rank's slice to all, into the unit's buffer, unless it is there still.
void Offload::gather_params(int unit) {
  if (units_.in_buffer(unit)) return;
  units_.wait_arrived(unit);
  at::Tensor whole = units_.taken(unit);
  units_.gathers(unit, context_.comm.all_gather(units_.slice(unit), whole, {OpPurpose::parameters, unit}));
}

// The sum of a slice goes to its owner, out of the full gradient.
void Offload::reduce_grads(int unit, Write write) {
  at::Tensor& sum = units_.sum_of(unit, write);
  units_.reduces(
      unit, context_.comm.reduce_scatter(units_.grads()[unit].sharded, sum, {OpPurpose::gradients, unit}));
}

// [anchor: gradient-leaves]
// Its sum is there, one block after it was issued: square it, and off to the host, piece by piece.
void Offload::leave(int unit, bool last_micro_batch) {
  units_.wait_reduced(unit);
  if (!last_micro_batch) return;
  units_.square(unit);
  const std::int64_t update = clock_.posted(step_);
  for (const std::size_t i : optimizer_->pieces_of(unit)) {
    at::Tensor landing = host_[i].grads[update % 2];
    Ticket ticket = context_.copies.to_host(units_.grads_of(optimizer_->pieces()[i]), landing,
                                            {OpPurpose::gradients, unit});
    optimizer_->lands(i, update, landing, ticket.end());
    if (!options_.overlap) ticket.end().wait();
    units_.leaves(unit, std::move(ticket));
  }
}

// As in lesson 04: each element counts once, and the sum over ranks is the mean already.
OpEnd Offload::global_norm() {
  const auto mark = context_.timeline.mark(Pass::norm);
  units_.add_squares(sums_);
  finish_sums(sums_);
  Ticket ticket = context_.comm.all_reduce(sums_, {OpPurpose::sums});
  const OpEnd summed = ticket.end();
  ticket.wait();
  global_norm_and_clip(sums_, context_.shape.workload.optim.clip, context_.scalars);
  return summed;
}

// [anchor: update-on-the-host]
// Returns at once: the host computes while the device begins the next step. An update that does not wait for
// the norm is posted before its gradients, and each piece begins when it lands.
void Offload::post_update() {
  const std::int64_t update = clock_.posted(step_);
  optimizer_->post({.scalars = norm_ == NormIs::known ? scalars_.send(context_, update)
                                                      : scalars_.send_guess(context_, update),
                    .after_sends = clock_.after_sends(step_),
                    .norm = norm_});
}

// [anchor: norm-known]
// Now it is known what the update that has begun without it is; where nothing depends on the norm, what was
// said before.
void Offload::confirm_update(const OpEnd& summed) {
  const std::int64_t update = clock_.posted(step_);
  optimizer_->norm_known(update, norm_ == NormIs::guessed ? scalars_.send(context_, update)
                                                          : LandedScalars{summed, scalars_.of(update)});
}

void Offload::end_step() {
  ++step_;
  if (options_.overlap) return;
  for (std::size_t i = 0; i < host_.size(); ++i) optimizer_->wait(i, clock_.posted(step_));
}

void Offload::quiet() {
  for (int unit = 0; unit < layout_.num_units(); ++unit) units_.wait_left(unit);
  scalars_.wait_sent();
  units_.release();
  for (std::size_t i = 0; i < host_.size(); ++i) {
    optimizer_->wait(i, due());
    send_params(i).wait_on_host();  // not counted: the coming step sends it again
  }
}

std::vector<StepResult> Offload::drain() {
  optimizer_->release();
  clock_.delayed = false;
  return {};
}

}  // namespace sc
