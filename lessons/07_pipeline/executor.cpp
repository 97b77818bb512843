#include "executor.h"

#include <ATen/ops/zeros.h>
#include <spdlog/fmt/fmt.h>

namespace sc {

using pipedream::Action;
using pipedream::Kind;

// [anchor: perform]
// A receive is posted and does not block; whoever needs the value waits for it. A send does not block either;
// whoever reuses its buffer waits for it.
void Executor::perform(const Action& action, const Slot& slot, const Batch* batch, const Sum* sum) {
  std::optional<Timeline::Mark> mark;
  if (pipedream::is_message(action.kind)) mark.emplace(context_.timeline.mark(pipedream::to_text(action)));
  switch (action.kind) {
    case Kind::receive_activation:
      received_x_[slot.input] = context_.comm.recv(stage_.input(slot), peer(action));
      return;
    case Kind::forward:
      return forward(action, slot, *batch);
    case Kind::send_activation:
      sent_x_[slot.set] = send(stage_.output(slot.set), action);
      return;
    case Kind::receive_gradient:
      sent_grad_[slot.grad_in].wait();
      received_grad_[slot.grad_in] = context_.comm.recv(stage_.grad(slot.grad_in), peer(action));
      return;
    case Kind::backward:
    case Kind::backward_input:
    case Kind::backward_weights:
      return backward(action, slot, *batch, *sum);
    case Kind::send_gradient:
      sent_grad_[slot.grad_out] = send(stage_.grad(slot.grad_out), action);
      return;
    case Kind::step:
    case Kind::stash:
    case Kind::drop:
      return;  // whoever executes the list knows what a step is; SlotWalk has kept and freed versions
  }
}

// On a GPU the first use of an operation sets up what its library needs, and that waits for all that the device was
// given, a posted receive included. Where that message comes only after this stage's answer, as in naive, both stages
// would wait for ever.
void Executor::warm_up() {
  const int stages = share_.schedule.stages;
  const auto on_device = stage_.sums().options();
  if (!on_device.device().is_cuda() || stages == 1) return;
  const BatchConfig& b = context_.shape.workload.batch;
  const at::Tensor tokens = at::zeros({b.micro, b.sequence}, on_device.dtype(at::kLong));
  const Batch batch{.tokens = tokens, .targets = tokens, .scale = at::zeros({}, on_device.dtype(at::kFloat))};
  at::Tensor sums = at::zeros({4}, on_device);
  const Pools& pools = share_.slots.pools;
  for (int position = share_.stage; position < share_.schedule.positions(); position += stages) {
    Slot slot{.set = 0, .input = 0};
    if (!share_.has_head(position)) slot.grad_in = 0;
    if (!share_.embeds(position)) slot.grad_out = pools.grads - 1;
    if (pools.pending > 0) slot.pending = 0;
    stage_.forward(position, batch, slot);
    for (const Write write : {Write::overwrite, Write::accumulate}) {
      stage_.backward(
          position, batch, slot, write, sums, [](int) {}, [] {});
      if (slot.pending >= 0) stage_.backward_weights(position, slot, write, [](int) {});
    }
  }
}

// What a rank says that it does, as pipedream names it.
void Executor::comes_to(std::size_t index, const Action& action) const {
  context_.timeline.comes_to(
      fmt::format("stage {}, action {}: {}", share_.stage, index, pipedream::to_text(action)));
}

Ticket Executor::send(const at::Tensor& t, const Action& action) {
  Ticket ticket = context_.comm.send(t, peer(action));
  if (sends_ == Sends::blocking) ticket.wait();
  return ticket;
}

void Executor::forward(const Action& action, const Slot& slot, const Batch& batch) {
  if (slot.input >= 0) received_x_[slot.input].wait();
  sent_x_[slot.set].wait();
  compute(action, [&] { stage_.forward(share_.schedule.position(action), batch, slot); });
}

void Executor::backward(const Action& action, const Slot& slot, const Batch& batch, const Sum& sum) {
  const int position = share_.schedule.position(action);
  if (action.kind == Kind::backward_weights)
    return compute(action, [&] { stage_.backward_weights(position, slot, sum.write, sum.done); });
  if (slot.grad_in >= 0) received_grad_[slot.grad_in].wait();
  compute(action, [&] {
    stage_.backward(position, batch, slot, sum.write, sum.sums, sum.done, [&] {
      if (slot.grad_out >= 0) sent_grad_[slot.grad_out].wait();
    });
  });
}

void Executor::wait_received() {
  for (Ticket& ticket : received_x_) ticket.wait();
  for (Ticket& ticket : received_grad_) ticket.wait();
}

void Executor::wait_sent() {
  for (Ticket& ticket : sent_x_) ticket.wait();
  for (Ticket& ticket : sent_grad_) ticket.wait();
}

// Evaluation: one batch after the other.
void Executor::forward_loss(const Batch& batch, int weights, at::Tensor& sums) {
  const pipedream::Schedule& schedule = share_.schedule;
  for (int chunk = 0; chunk < schedule.chunks; ++chunk) {
    const int position = chunk * schedule.stages + share_.stage, stages = schedule.stages;
    const bool alone = stages == 1;
    Slot slot{.set = alone ? chunk : 0, .input = 0, .weights = weights};
    if (alone && position > 0) slot.from_set = chunk - 1;
    if (!alone && position > 0)
      context_.comm.recv(stage_.input(slot), rank_of_stage((position - 1) % stages)).wait();
    stage_.forward(position, batch, slot);
    if (share_.has_head(position)) {
      stage_.head_loss(batch, slot, sums);
    } else if (!alone) {
      context_.comm.send(stage_.output(slot.set), rank_of_stage((position + 1) % stages)).wait();
    }
  }
}

Rank Executor::peer(const Action& action) const {
  return rank_of_stage(pipedream::peer_of(share_.schedule, action));
}

// Of this replica.
Rank Executor::rank_of_stage(int stage) const { return Rank{stage * share_.replicas + share_.replica}; }

}  // namespace sc
