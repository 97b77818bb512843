#include "offload.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>

namespace sc {

// One optimizer step. Gradients leave for the host as soon as they are summed; forward pulls parameters from there
// when it comes to them.
StepResult Offload::train_step(std::span<const Batch> micro_batches) {
  release_params();
  update_->begin_step();
  sums_.zero_();
  for (std::size_t j = 0; j < micro_batches.size(); ++j) {
    const Batch& batch = micro_batches[j];
    const Write slice = j == 0 ? Write::overwrite : Write::accumulate;  // full gradients are always fresh
    const bool last = j + 1 == micro_batches.size();                    // only then is the sum complete
    expect_gathers(true);
    forward(batch, j == 0);
    wait_left(0);
    wait_left(layout_.last_unit());
    passes_.head(batch, params_full_, grads_full_, Write::overwrite,
                 sums_);  // loss; gradients of x, head, ln_f
    reduce_grads(layout_.last_unit(), slice);
    // Last block first. While block `unit` computes, the gradient of the one above it is summed, and that of the one
    // above that travels to the host.
    for (int unit = layout_.num_blocks(), next = unit; unit >= 1; --unit) {
      while (next > std::max<std::int64_t>(1, unit - options_.prefetch)) gather_params(--next);
      wait_gathered(unit);
      passes_.backward_input(unit, params_full_[unit]);
      leave(unit + 1, last);
      wait_left(unit);  // what block unit + 2 computed must have left
      passes_.backward_weights(unit, grads_full_[unit], Write::overwrite);
      reduce_grads(unit, slice);
    }
    passes_.embed_backward(batch, grads_full_[0], Write::overwrite);  // the tied head opened it
    reduce_grads(0, slice);
    leave(1, last);
    leave(0, last);
  }
  update_->end_step();
  global_norm();
  post_update();
  return {sums_, context_.scalars.grad_norm};
}

// [anchor: pull]
// fetch: the step's first micro-batch. What has been updated is fetched at once; forward waits for the host only
// where it comes to a unit that has not.
void Offload::forward(const Batch& batch, bool fetch) {
  const int last = layout_.last_unit();
  for (int unit = 0, fetched = fetch ? 0 : last + 1, gathered = 0; unit <= last; ++unit) {
    while (fetched <= last && (fetched <= unit || (options_.overlap && updated(fetched))))
      fetch_params(fetched++);
    while (gathered <= std::min<std::int64_t>(last, unit + options_.prefetch) &&
           (gathered <= unit || (gathered < fetched && arrived(gathered))))
      gather_params(gathered++);
    wait_gathered(unit);
    passes_.forward(unit, batch, params_full_[unit]);
  }
}

void Offload::forward_loss(const Batch& batch, at::Tensor& sums) {
  expect_gathers(false);
  forward(batch, false);
  passes_.head_loss(batch, params_full_, sums);
}

// [anchor: wait-for-the-host]
// The only place where a forward meets an update: the host waits until the unit's pieces have been updated, the
// device until they have arrived.
void Offload::fetch_params(int unit) {
  for (const std::size_t i : pieces_of(unit)) {
    if (const std::shared_ptr<const HostPiece> work = update_->wait(i, due()))
      context_.timeline.add(fmt::format("AdamW, unit {}", unit), work->began_at(), work->ended_at());
    if (!update_->to_send(i, due())) continue;
    fetched_[unit].push_back(send_params(i, true));
  }
  if (!options_.overlap)
    for (Ticket& ticket : fetched_[unit]) ticket.wait();
}

// A piece's, from the host to their place on the device.
Ticket Offload::send_params(std::size_t piece, bool in_step) {
  at::Tensor on_device = update_->pieces()[piece].on_device;
  Ticket ticket = context_.copies.to_device(update_->params(piece, due()), on_device,
                                            update_->step_of_sending(piece, due()));
  update_->sent(piece, ticket.end(), in_step);
  return ticket;
}

bool Offload::updated(int unit) {
  return std::ranges::all_of(pieces_of(unit), [&](std::size_t i) { return update_->ready(i, due()); });
}

bool Offload::arrived(int unit) {
  return std::ranges::all_of(fetched_[unit], [](Ticket& ticket) { return ticket.ready(); });
}

// Every rank's slice to all, into the unit's buffer, unless it is there still.
void Offload::gather_params(int unit) {
  int& resident = resident_[params_buffer_[unit]];
  if (resident == unit) return;
  resident = unit;
  for (Ticket& ticket : fetched_[unit]) ticket.wait();
  fetched_[unit].clear();
  if (!keeps_.parameters) bring_params(unit);
  gathered_[unit] = context_.comm.all_gather(slices_[unit].params, params_full_[unit].sharded);
}

// Where the slice is on the host: into its place in the unit's buffer, each time that the unit is gathered.
void Offload::bring_params(int unit) {
  for (const std::size_t i : pieces_of(unit)) fetched_[unit].push_back(send_params(i, true));
  for (Ticket& ticket : fetched_[unit]) ticket.wait();
  fetched_[unit].clear();
}

// Whoever brings them may begin before it is asked.
void Offload::expect_gathers(bool backward) {
  if (keeps_.parameters) return;
  std::vector<std::size_t> pieces;
  std::vector<int> resident = resident_;
  const auto gather = [&](int unit) {
    int& there = resident[params_buffer_[unit]];
    if (there != unit) pieces.insert(pieces.end(), pieces_of(unit).begin(), pieces_of(unit).end());
    there = unit;
  };
  for (int unit = 0; unit <= layout_.last_unit(); ++unit) gather(unit);
  for (int unit = layout_.num_blocks(); backward && unit >= 1; --unit) gather(unit);
  update_->expect(pieces);
}

void Offload::wait_gathered(int unit) { gathered_[unit].wait(); }

// What is in the buffers is from before the update, or from an evaluation.
void Offload::release_params() { std::fill(resident_.begin(), resident_.end(), -1); }

// The sum of a slice goes to its owner, out of the full gradient, as in lesson 04. With one micro-batch it stays in
// that buffer, where the slice lies.
void Offload::reduce_grads(int unit, Write write) {
  const std::size_t buffer = grads_buffer_[unit];
  at::Tensor& sum = in_flight_[buffer].lands_in(slices_[unit].grads, scratch_[buffer], write);
  in_flight_[buffer].ticket = context_.comm.reduce_scatter(grads_full_[unit].sharded, sum);
}

// [anchor: gradient-leaves]
// Its sum is there, one block after it was issued: square it, and off to the host, piece by piece.
void Offload::leave(int unit, bool last_micro_batch) {
  const std::size_t buffer = grads_buffer_[unit];
  in_flight_[buffer].wait();
  if (!last_micro_batch) return;
  const OwnedSlice& slice = slices_[unit];
  at::Tensor squares = squares_.select(0, unit);
  squares.zero_();
  add_sums_of_squares({&slice.grads, 1}, squares);
  if (!update_->takes_gradients_in_backward()) return;
  for (const std::size_t i : pieces_of(unit)) {
    at::Tensor landing = update_->pieces()[i].grads[turn()];
    Ticket ticket = context_.copies.to_host(update_->pieces()[i].grads_on_device, landing);
    landed_[i] = ticket.end();
    if (!options_.overlap) landed_[i].wait();
    left_[buffer].push_back(std::move(ticket));
  }
}

// Afterwards the unit's buffer may be written again.
void Offload::wait_left(int unit) {
  std::vector<Ticket>& tickets = left_[grads_buffer_[unit]];
  for (Ticket& ticket : tickets) ticket.wait();
  tickets.clear();
}

// Units' squares are added in their order, whatever the order in which they left.
void Offload::global_norm() {
  at::Tensor all = sums_.select(0, kSquares);
  for (int unit = 0; unit < layout_.num_units(); ++unit)
    all.add_(squares_.select(0, unit).select(0, kSquares));
  finish_sums(sums_);
  context_.comm.all_reduce(sums_).wait();
  global_norm_and_clip(sums_, context_.shape.workload.optim.clip, context_.scalars);
}

// [anchor: update-on-the-host]
// Returns at once: the host computes while the device begins the next step.
void Offload::post_update() {
  scalars_left_.wait();
  scalars_.select(0, 0).copy_(context_.scalars.lr);
  scalars_.select(0, 1).copy_(context_.scalars.step);
  scalars_.select(0, 2).copy_(context_.scalars.clip);
  scalars_left_ = context_.copies.to_host(scalars_, scalars_host_[turn()]);
  // A piece's parameters are sent once a step. Exact: this step's were those that this update changes. Delayed: the
  // next step still sends what the update before this one has made.
  const std::int64_t after_sends = steps_ - taken_over_ + 1 + (delayed(done() + 1) ? 1 : 0);
  update_->post({.landed = landed_,
                 .scalars_landed = scalars_left_.end(),
                 .scalars = scalars_host_[turn()].const_data_ptr<double>(),
                 .turn = turn(),
                 .after_sends = after_sends});
  ++steps_;
  if (options_.overlap) return;
  for (std::size_t i = 0; i < update_->pieces().size(); ++i) update_->wait(i, steps_);
}

// A delayed update still reads its gradients while the next ones land.
int Offload::turn() const {
  return options_.update == UpdateKind::delayed ? static_cast<int>(steps_ % 2) : 0;
}

bool Offload::delayed(std::int64_t step) const {
  return options_.update == UpdateKind::delayed && step >= options_.warm_steps;
}

// [anchor: one-update-behind]
// Delayed: forward computes with what the update before the last one has made, which the host had a whole step for.
std::int64_t Offload::due() const { return steps_ - (puts_off() && steps_ > 0 ? 1 : 0); }

bool Offload::puts_off() const { return delayed(done()) && !drained_; }

void Offload::quiet() {
  for (int unit = 0; unit < layout_.num_units(); ++unit) wait_left(unit);
  scalars_left_.wait();
  release_params();
  for (std::size_t i = 0; i < update_->pieces().size(); ++i) {
    update_->wait(i, due());
    if (!update_->to_send(i, due())) continue;
    send_params(i, false).wait_on_host();
  }
}

std::vector<StepResult> Offload::drain() {
  update_->release();
  drained_ = true;
  return {};
}

}  // namespace sc
