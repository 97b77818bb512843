#include "infinity.h"

#include <algorithm>

namespace sc {

// [anchor: through-the-window]
// The host's thread calls this before each piece of an update (HostOptimizer::apply): the states after the
// one that is updated are read while the one before it is written, so two buffers are taken. Between two
// updates the whole window fills.
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
// When what was in it has been written, and its parameters have left the window: for the device, the host's
// memory or the disk.
bool StatesOnDisk::free(Number before, const HostOptimizer& host) const {
  if (before < 0) return true;
  const OpEnd& written = written_[window_.buffer_of(before)];
  if (!written.passed() || !params_.left(before, host)) return false;
  written.wait();  // throws what it failed with
  return true;
}

// Pieces take their turns in order: a later one may have been read, and waits.
bool StatesOnDisk::fetched(Number number) const {
  return number == next_update_ && number < next_read_ && read_[window_.buffer_of(number)].passed();
}

PieceStates StatesOnDisk::states(Number number) {
  read_[window_.buffer_of(number)].wait();  // has passed; throws what it failed with
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

// One optimizer step: lesson 05's, with three calls more: begin_step, expect_gathers (params_at=host or disk:
// which units are gathered, so that the disk can read ahead) and end_updates.
StepResult Infinity::train_step(std::span<const Batch> micro_batches) {
  begin_step();
  sums_.zero_();
  for (std::size_t j = 0; j < micro_batches.size(); ++j) {
    const Batch& batch = micro_batches[j];
    const Write slice = j == 0 ? Write::overwrite : Write::accumulate;
    const bool last = j + 1 == micro_batches.size();
    expect_gathers(true);
    forward(batch, j == 0);
    units_.wait_left(0);
    units_.wait_left(layout_.last_unit());
    passes_.head(batch, units_.params(), units_.grads(), Write::overwrite, sums_);
    reduce_grads(layout_.last_unit(), slice);
    for (int unit = layout_.num_blocks(), next = unit; unit >= 1; --unit) {
      while (next > std::max<std::int64_t>(1, unit - options_.prefetch)) gather_params(--next);
      units_.wait_gathered(unit);
      passes_.backward_input(unit, units_.params()[unit]);
      leave(unit + 1, last);
      units_.wait_left(unit);
      passes_.backward_weights(unit, units_.grads()[unit], Write::overwrite);
      reduce_grads(unit, slice);
    }
    passes_.embed_backward(batch, units_.grads()[0], Write::overwrite);
    reduce_grads(0, slice);
    leave(1, last);
    leave(0, last);
  }
  end_updates();
  global_norm();
  units_.step_resident(context_, layout_);
  post_update();
  return {sums_, context_.scalars.grad_norm};
}

// What gathers of the step before brought may be written over: where they bring parameters any number of
// times, the beginning of the next step stands for the last time (UpdateClock::after_sends).
void Infinity::begin_step() {
  units_.release();
  states_->give_first_buffer_back();
  if (delivery_ != Delivery::by_gathers) return;
  for (std::size_t i = 0; i < pieces_.size(); ++i) optimizer_->sent(i, {});
}

// A delayed update ends here, too, so that its transfers belong to this step.
void Infinity::end_updates() {
  const std::int64_t posted = clock_.posted(step_);
  for (std::size_t i = 0; i < pieces_.size(); ++i) optimizer_->wait(i, posted);
  for (Ticket& ticket : coming_down_) ticket.wait_on_host();
  coming_down_.clear();
  file_->end_updates(posted);
  file_->clock().end_step();
}

// fetch: the step's first micro-batch.
void Infinity::forward(const Batch& batch, bool fetch) {
  const int last = layout_.last_unit();
  for (int unit = 0, fetched = fetch ? 0 : last + 1, gathered = 0; unit <= last; ++unit) {
    while (fetched <= last && (fetched <= unit || optimizer_->updated(fetched, due())))
      finish_update(fetched++);
    while (gathered <= std::min<std::int64_t>(last, unit + options_.prefetch) &&
           (gathered <= unit || (gathered < fetched && units_.arrived(gathered))))
      gather_params(gathered++);
    units_.wait_gathered(unit);
    passes_.forward(unit, batch, units_.params()[unit]);
  }
}

void Infinity::forward_loss(const Batch& batch, at::Tensor& sums) {
  expect_gathers(false);
  forward(batch, false);
  passes_.head_loss(batch, units_.params(), sums);
}

// The only place where a forward meets an update: gradients whose turn it is come down, the host is waited
// for, new parameters go up.
void Infinity::finish_update(int unit) {
  for (const std::size_t i : optimizer_->pieces_of(unit)) {
    land_gradients(i);
    if (const std::shared_ptr<const HostPiece> work = wait_updated(i))
      context_.timeline.add({Pass::update, unit}, work->began_at(), work->ended_at());
    if (!to_send(i)) continue;
    Ticket ticket = send_params(i);
    optimizer_->sent(i, ticket.end());
    units_.arrives(unit, std::move(ticket));
  }
}

// [anchor: gradients-when-it-is-their-turn]
// Where gradients wait on the device they come down a window ahead of the piece that is waited for: in
// forward, or before it where an evaluation or a save needs what the update makes. Either way they
// count as the coming step's copies.
void Infinity::land_gradients(std::size_t piece) {
  const std::int64_t update = clock_.posted(step_) - 1;
  if (options_.grads_at == GradsAt::host || update < 0) return;
  const Number end = std::min(optimizer_->number_of(update, piece) + window_.buffers(),
                              optimizer_->number_of(update + 1, 0));
  for (; next_landing_ < end; ++next_landing_) {
    const std::size_t i = window_.piece_of(next_landing_);
    at::Tensor landing = grads_window_[window_.buffer_of(next_landing_)].narrow(0, 0, window_.sizes[i]);
    coming_down_.push_back(context_.copies.to_host(units_.grads_of(pieces_[i]), landing,
                                                   {OpPurpose::gradients, pieces_[i].unit}, step_));
    optimizer_->lands(i, update, landing, coming_down_.back().end());
  }
}

std::shared_ptr<const HostPiece> Infinity::wait_updated(std::size_t piece) {
  const auto began = StepClock::Clock::now();
  const std::shared_ptr<const HostPiece> work = optimizer_->wait(piece, due());
  file_->clock().waited(began, StepClock::Clock::now());
  return work;
}

// An evaluation may have taken them out of the window.
bool Infinity::to_send(std::size_t piece) const {
  if (delivery_ == Delivery::from_window) return optimizer_->sends(piece) < due();
  return delivery_ == Delivery::once_a_step;
}

// From the host to their place on the device.
Ticket Infinity::send_params(std::size_t piece, Copies::OfStep of_step) {
  at::Tensor on_device = units_.params_of(pieces_[piece]);
  return context_.copies.to_device(params_->bring(piece, due()), on_device,
                                   {OpPurpose::parameters, pieces_[piece].unit}, of_step);
}

// Every rank's slice to all, into the unit's buffer, unless it is there still.
void Infinity::gather_params(int unit) {
  if (units_.in_buffer(unit)) return;
  if (delivery_ == Delivery::by_gathers) bring_params(unit);
  units_.wait_arrived(unit);
  at::Tensor whole = units_.taken(unit);
  units_.gathers(unit, context_.comm.all_gather(units_.slice(unit), whole, {OpPurpose::parameters, unit}));
}

// The sum of a slice goes to its owner, out of the full gradient.
void Infinity::reduce_grads(int unit, Write write) {
  at::Tensor& sum = units_.sum_of(unit, write);
  units_.reduces(
      unit, context_.comm.reduce_scatter(units_.grads()[unit].sharded, sum, {OpPurpose::gradients, unit}));
}

// Where the slice is elsewhere: into its place in the unit's buffer, each time that the unit is gathered.
void Infinity::bring_params(int unit) {
  for (const std::size_t i : optimizer_->pieces_of(unit)) {
    const auto began = StepClock::Clock::now();
    Ticket ticket = send_params(i);
    file_->clock().waited(began, StepClock::Clock::now());
    params_->sent(ticket.end());
    units_.arrives(unit, std::move(ticket));
  }
}

// Tells the parameters' home the order of the coming gathers, so that a disk can read ahead.
void Infinity::expect_gathers(bool backward) {
  if (delivery_ != Delivery::by_gathers) return;
  std::vector<std::size_t> pieces;
  std::vector<int> in_buffer = units_.in_buffers();
  const auto gather = [&](int unit) {
    int& there = in_buffer[units_.params_buffer(unit)];
    const std::span<const std::size_t> its = optimizer_->pieces_of(unit);
    if (there != unit) pieces.insert(pieces.end(), its.begin(), its.end());
    there = unit;
  };
  for (int unit = 0; unit <= layout_.last_unit(); ++unit) gather(unit);
  for (int unit = layout_.num_blocks(); backward && unit >= 1; --unit) gather(unit);
  params_->expect(pieces);
}

// Its sum is there, one block after it was issued: square it, and with grads_at=host off to the host.
void Infinity::leave(int unit, bool last_micro_batch) {
  units_.wait_reduced(unit);
  if (!last_micro_batch) return;
  units_.square(unit);
  if (options_.grads_at == GradsAt::device) return;
  const std::int64_t update = clock_.posted(step_);
  for (const std::size_t i : optimizer_->pieces_of(unit)) {
    at::Tensor landing = grads_host_[update % 2][i];
    Ticket ticket =
        context_.copies.to_host(units_.grads_of(pieces_[i]), landing, {OpPurpose::gradients, unit});
    optimizer_->lands(i, update, landing, ticket.end());
    units_.leaves(unit, std::move(ticket));
  }
}

// As in lesson 04: each element counts once, and the sum over ranks is the mean already.
void Infinity::global_norm() {
  const auto mark = context_.timeline.mark(Pass::norm);
  units_.add_squares(sums_);
  finish_sums(sums_);
  context_.comm.all_reduce(sums_, {OpPurpose::sums}).wait();
  global_norm_and_clip(sums_, context_.shape.workload.optim.clip, context_.scalars);
}

// Returns at once. Nothing is overwritten in the window: a buffer is read into when it is free.
void Infinity::post_update() {
  const std::int64_t update = clock_.posted(step_);
  optimizer_->post({.scalars = scalars_.send(context_, update),
                    .after_sends = delivery_ == Delivery::from_window ? 0 : clock_.after_sends(step_)});
  ++step_;
}

void Infinity::quiet() {
  for (int unit = 0; unit < layout_.num_units(); ++unit) units_.wait_left(unit);
  scalars_.wait_sent();
  units_.release();
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    land_gradients(i);
    (void)wait_updated(i);
    if (!to_send(i)) continue;
    if (delivery_ == Delivery::from_window) {
      Ticket ticket = send_params(i, step_);  // the coming step's: it does not send them again
      optimizer_->sent(i, ticket.end());
      ticket.wait_on_host();
    } else {
      send_params(i).wait_on_host();
    }
  }
}

std::vector<StepResult> Infinity::drain() {
  states_->give_first_buffer_back();
  optimizer_->release();
  clock_.delayed = false;
  return {};
}

}  // namespace sc
