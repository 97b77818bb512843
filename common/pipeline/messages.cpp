#include "common/pipeline/messages.h"

namespace sc {

using pipedream::Action;

Messages::Messages(RunContext& context, const Share& share, Stage& stage, bool blocking)
    : context_(context),
      share_(share),
      stage_(stage),
      blocking_(blocking),
      received_x_(static_cast<std::size_t>(share.slots.pools.inputs)),
      received_grad_(static_cast<std::size_t>(share.slots.pools.grads)),
      sent_x_(static_cast<std::size_t>(share.slots.pools.sets)),
      sent_grad_(static_cast<std::size_t>(share.slots.pools.grads)) {}

void Messages::receive_activation(const Action& action, const Slot& slot) {
  received_x_[slot.input] = receive(stage_.input(slot), action);
}

void Messages::send_activation(const Action& action, const Slot& slot) {
  sent_x_[slot.set] = send(stage_.output(slot), action);
}

void Messages::receive_gradient(const Action& action, const Slot& slot) {
  wait_gradient_sent(slot.grad_of_output);
  received_grad_[slot.grad_of_output] = receive(stage_.grad(slot.grad_of_output), action);
}

void Messages::send_gradient(const Action& action, const Slot& slot) {
  sent_grad_[slot.grad_of_input] = send(stage_.grad(slot.grad_of_input), action);
}

void Messages::wait_activation(const Slot& slot) {
  if (slot.input != kNoBuffer) received_x_[slot.input].wait();
}

void Messages::wait_gradient(const Slot& slot) {
  if (slot.grad_of_output != kNoBuffer) received_grad_[slot.grad_of_output].wait();
}

void Messages::wait_activation_sent(const Slot& slot) { sent_x_[slot.set].wait(); }

void Messages::wait_gradient_sent(int buffer) {
  if (buffer != kNoBuffer) sent_grad_[buffer].wait();
}

void Messages::wait_received() {
  for (Ticket& ticket : received_x_) ticket.wait();
  for (Ticket& ticket : received_grad_) ticket.wait();
}

void Messages::wait_sent() {
  for (Ticket& ticket : sent_x_) ticket.wait();
  for (Ticket& ticket : sent_grad_) ticket.wait();
}

Ticket Messages::send(const at::Tensor& t, const Action& action) {
  const auto mark = context_.timeline.mark(pipedream::to_text(action));
  Ticket ticket =
      context_.comm.send(t, rank_of_stage(pipedream::peer_of(share_.schedule, action)), share_.what(action));
  if (blocking_) ticket.wait();
  return ticket;
}

Ticket Messages::receive(at::Tensor& t, const Action& action) {
  const auto mark = context_.timeline.mark(pipedream::to_text(action));
  return context_.comm.recv(t, rank_of_stage(pipedream::peer_of(share_.schedule, action)),
                            share_.what(action));
}

void Messages::forward_loss(const Batch& batch, at::Tensor& sums) {
  const int stages = share_.schedule.stages;
  for (int chunk = 0; chunk < share_.schedule.chunks; ++chunk) {
    const int position = chunk * stages + share_.stage;
    const bool alone = stages == 1;
    Slot slot{.set = alone ? chunk : 0, .input = 0};
    if (alone && position > 0) slot.input_in_set = chunk - 1;
    if (!alone && position > 0)
      context_.comm
          .recv(stage_.input(slot), rank_of_stage((position - 1) % stages),
                {OpPurpose::activations, share_.part(position - 1).last()})
          .wait();
    stage_.forward(position, batch.tokens, slot);
    if (share_.has_head(position)) {
      stage_.head_loss(batch.targets, slot, sums);
    } else if (!alone) {
      context_.comm
          .send(stage_.output(slot), rank_of_stage((position + 1) % stages),
                {OpPurpose::activations, share_.part(position).last()})
          .wait();
    }
  }
}

}  // namespace sc
