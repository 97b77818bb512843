#include "infinity.h"

#include <algorithm>

namespace sc {

// One optimizer step. New against lesson 05: optimizer states lie on a disk, and pass through a window of
// host memory to be updated (StatesOnDisk, below). Parameters and gradients may have other homes, too
// (params_at, grads_at): end_gathers, expect_gathers and end_updates are theirs.
StepResult Infinity::train_step(std::span<const Batch> micro_batches) {
  // A save may have read states into the window's first buffer: those that were there are read again.
  states_->give_first_buffer_back();
  // From here on the host may overwrite the parameters that the step before gathered from host memory.
  end_gathers();
  post_update();
  release_params();
  sums_.zero_();
  for (std::size_t j = 0; j < micro_batches.size(); ++j) {
    const Batch& batch = micro_batches[j];
    // Full gradients are always fresh. Slices add them up, and have the step's sum after the last one.
    const Write slice = j == 0 ? Write::overwrite : Write::accumulate;
    const bool last = j + 1 == micro_batches.size();
    // With params_at=disk the parameters of the coming gathers are read ahead, in the order of the gathers.
    expect_gathers(true);
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
  // The update of the step before ends here at the latest, with its reads and writes, even a delayed one.
  end_updates();
  global_norm();
  for (int unit = 0; unit < options_.resident; ++unit) step_shard(unit);
  tell_norm();
  return {sums_, context_.scalars.grad_norm};
}

// [anchor: through-the-window]
// The host's thread calls this before each piece of an update (HostOptimizer::apply). A Number counts pieces
// as they pass: update u of piece i has u x pieces + i. One is updated and the one before it written, while
// the other buffers are read into. Between two updates nothing is written, and the whole window fills.
// Returns true if a buffer is still written or sent from: it will be free without another update.
bool StatesOnDisk::fetch_ahead(const HostOptimizer& host) {
  const bool between = next_update_ % window_.pieces() == 0;
  const Number last =
      next_update_ + (between ? window_.buffers() - 1 : std::max<Number>(0, window_.buffers() - 2));
  for (; next_read_ <= last; ++next_read_) {
    if (!free(next_read_ - window_.buffers(), host)) return true;
    const std::size_t piece = window_.piece_of(next_read_), buffer = window_.buffer_of(next_read_);
    read_[buffer] = file_.read(piece, bytes(buffer, piece), what(piece), next_read_ / window_.pieces());
  }
  return false;
}

// [anchor: a-buffer-is-free]
// A buffer is free when the states of the number `before` have been written from there, and their parameters
// have left the window. wait() throws what the write failed with.
bool StatesOnDisk::free(Number before, const HostOptimizer& host) const {
  if (before < 0) return true;
  const OpEnd& written = written_[window_.buffer_of(before)];
  if (!written.passed() || !params_.left(before, host)) return false;
  written.wait();
  return true;
}

// Pieces are updated in order: one that has been read ahead waits for those before it.
bool StatesOnDisk::fetched(Number number) const {
  return number == next_update_ && number < next_read_ && read_[window_.buffer_of(number)].passed();
}

// Called when fetched() has said that the read has ended: wait() throws what the read failed with.
PieceStates StatesOnDisk::states(Number number) {
  read_[window_.buffer_of(number)].wait();
  return vectors(window_.buffer_of(number), window_.piece_of(number));
}

void StatesOnDisk::put_back(Number number, const std::shared_ptr<const HostPiece>& work) {
  if (work) {
    work->wait();
    file_.clock().updated(work->began_at(), work->ended_at());
  }
  const std::size_t piece = window_.piece_of(number), buffer = window_.buffer_of(number);
  written_[buffer] = file_.write(piece, bytes(buffer, piece), what(piece), number / window_.pieces());
  ++next_update_;
}

void Infinity::end_updates() {
  const std::int64_t posted = clock_.posted(step_);
  for (std::size_t i = 0; i < pieces_.size(); ++i) optimizer_->wait(i, posted);
  for (Ticket& ticket : coming_down_) ticket.wait_on_host();
  coming_down_.clear();
  file_->end_updates(posted);
  file_->clock().end_step();
}

// While one unit computes, the next `prefetch` are on their way. A block's buffer is free when the block has
// computed: the gather that takes it over starts after the work issued so far.
// In a step's first micro-batch (fetch) parameters come up from the host. due() counts the updates that they
// must have had. A unit that has had them is fetched ahead; forward waits only for the one it has come to.
void Infinity::forward(const Batch& batch, bool fetch) {
  const int last = layout_.last_unit();
  for (int unit = 0, fetched = fetch ? 0 : last + 1, next = 0; unit <= last; ++unit) {
    while (fetched <= last && (fetched <= unit || optimizer_->updated(fetched, due())))
      fetch_params(fetched++);
    while (next <= std::min<std::int64_t>(last, unit + options_.prefetch) &&
           (next <= unit || (next < fetched && arrived(next))))
      gather_params(next++);
    wait_gathered(unit);
    passes_.forward(unit, batch, params_full_[unit]);
  }
}

void Infinity::forward_loss(const Batch& batch, at::Tensor& sums) {
  expect_gathers(false);
  forward(batch);
  passes_.head_loss(batch, params_full_, sums);
}

// Only here does a forward wait for an update: until each piece of the unit has had due() of them. The device
// waits for the copies that start here where it gathers the unit.
void Infinity::fetch_params(int unit) {
  for (const std::size_t i : optimizer_->pieces_of(unit)) {
    land_gradients(i);
    if (const std::shared_ptr<const HostPiece> work = wait_updated(i))
      context_.timeline.add({Pass::update, unit}, work->began_at(), work->ended_at());
    if (!to_send(i)) continue;
    Ticket ticket = copy_up(i);
    optimizer_->sent(i, ticket.end());
    arriving_[unit].push_back(std::move(ticket));
  }
}

// [anchor: gradients-when-it-is-their-turn]
// With grads_at=device gradients come down a window ahead of the piece that is waited for: by forward or,
// between two steps, by a save or an evaluation. Either way they count as copies of that forward's step.
void Infinity::land_gradients(std::size_t i) {
  const std::int64_t update = clock_.posted(step_) - 1;
  if (options_.grads_at == GradsAt::host || update < 0) return;
  const Number end =
      std::min(optimizer_->number_of(update, i) + window_.buffers(), optimizer_->number_of(update + 1, 0));
  for (; next_landing_ < end; ++next_landing_) {
    const std::size_t piece = window_.piece_of(next_landing_);
    at::Tensor landing = grads_window_[window_.buffer_of(next_landing_)].narrow(0, 0, window_.sizes[piece]);
    coming_down_.push_back(context_.copies.to_host(grads_on_device(pieces_[piece]), landing,
                                                   {OpPurpose::gradients, pieces_[piece].unit}, step_));
    optimizer_->lands(piece, update, landing, coming_down_.back().end());
  }
}

// Copies a piece's parameters from their home (params_at.cpp) to their place on the device.
Ticket Infinity::copy_up(std::size_t i, Copies::OfStep step) {
  const Piece& p = optimizer_->pieces()[i];
  at::Tensor on_device = params_on_device(p);
  return context_.copies.to_device(params_->bring(i, due()), on_device, {OpPurpose::parameters, p.unit},
                                   step);
}

// Every rank's slice goes to all, into the unit's buffer, unless the unit is there still.
void Infinity::gather_params(int unit) {
  int& there = in_buffer_[params_buffer_[unit]];
  if (there == unit) return;
  bring_params(unit);
  wait_arrived(unit);
  context_.timeline.gives_up_params(there);
  there = unit;
  gathered_[unit] = context_.comm.all_gather(slices_[unit].params, params_full_[unit].sharded,
                                             {OpPurpose::parameters, unit});
}

// The sum of a slice goes to its owner, out of the full gradient, whose memory is free when it has left.
void Infinity::reduce_grads(int unit, Write write, bool last) {
  const std::size_t buffer = grads_buffer_[unit];
  PendingSum& pending = in_flight_[buffer];
  at::Tensor& sum = pending.lands_in(slices_[unit].grads, scratch_[buffer], write);
  pending.ticket = context_.comm.reduce_scatter(grads_full_[unit].sharded, sum, {OpPurpose::gradients, unit});
  complete_[buffer] = last ? unit : kNoUnit;
}

// Called one block after reduce_grads(unit), when the sum has come. After the last micro-batch that is the
// step's sum: the owner squares it for the norm, and sends it to the host piece by piece.
void Infinity::leave(int unit) {
  const std::size_t buffer = grads_buffer_[unit];
  in_flight_[buffer].wait();
  if (complete_[buffer] != unit) return;
  square(unit);
  if (options_.grads_at == GradsAt::device) return;
  // Updates count from 0, so this step's has the number of those that earlier steps have posted.
  const std::int64_t update = clock_.posted(step_);
  for (const std::size_t i : optimizer_->pieces_of(unit)) {
    at::Tensor landing = grads_host_[update % 2][i];
    Ticket ticket = context_.copies.to_host(grads_on_device(optimizer_->pieces()[i]), landing,
                                            {OpPurpose::gradients, unit});
    optimizer_->lands(i, update, landing, ticket.end());
    leaving_[buffer].push_back(std::move(ticket));
  }
}

// Every rank squares the slices that it owns, so each element counts once. The sum over ranks is the mean
// already: the divisor of the loss was the *global* batch's tokens (Batch::scale).
void Infinity::global_norm() {
  const auto mark = context_.timeline.mark(Pass::norm);
  add_squares();
  finish_sums(sums_);
  context_.comm.all_reduce(sums_, {OpPurpose::sums}).wait();
  global_norm_and_clip(sums_, context_.shape.workload.optim.clip, context_.scalars);
}

// Returns at once: the host will update each piece when its gradient has landed and the norm is known.
void Infinity::post_update() { optimizer_->post({after_sends()}); }

// With the norm known, learning rate, step and clip factor go to the host.
void Infinity::tell_norm() {
  const std::int64_t update = clock_.posted(step_++);
  optimizer_->norm_known(update, scalars_.send(context_, update));
}

}  // namespace sc
