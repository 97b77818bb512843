#include "pipeline.h"

#include <ATen/ops/empty.h>
#include <spdlog/fmt/fmt.h>

#include "common/base/check.h"
#include "common/strategy/replica_hash.h"
#include "measured.h"

namespace sc {

using pipedream::Action;
using pipedream::Kind;

namespace {

// What a rank says that it does, as pipedream names it.
std::string label(int stage, std::size_t index, const Action& action) {
  return fmt::format("stage {}, action {}: {}", stage, index, pipedream::to_text(action));
}

}  // namespace

// One optimizer step: this stage's list, as pipedream proved it.
StepResult Pipeline::train_step(std::span<const Batch> micro_batches) {
  sums_.zero_();
  const std::vector<Action>& actions = share_.actions();
  for (std::size_t i = 0; i < actions.size(); ++i) {
    context_.timeline.comes_to(label(share_.stage, i, actions[i]));
    perform(actions[i], share_.slots.of[i], micro_batches);
  }
  for (Ticket& ticket : sent_x_) ticket.wait();  // nothing of a step outlives it: one graph can hold it
  for (Ticket& ticket : sent_grad_) ticket.wait();
  return {sums_, context_.scalars.grad_norm};
}

// [anchor: perform]
// A receive is posted and does not block; whoever needs the value waits for it. A send does not block either;
// whoever reuses its buffer waits for it.
void Pipeline::perform(const Action& action, const Slot& slot, std::span<const Batch> micro_batches) {
  std::optional<Timeline::Mark> mark;
  if (pipedream::is_message(action.kind)) mark.emplace(context_.timeline.mark(pipedream::to_text(action)));
  const auto batch = [&]() -> const Batch& {
    return micro_batches[static_cast<std::size_t>(action.microbatch)];
  };
  switch (action.kind) {
    case Kind::receive_activation:
      received_x_[slot.input] = context_.comm.recv(stage_.input(slot), peer(action));
      return;
    case Kind::forward:
      return forward(action, slot, batch());
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
      return backward(action, slot, batch());
    case Kind::send_gradient:
      sent_grad_[slot.grad_out] = send(stage_.grad(slot.grad_out), action);
      return;
    case Kind::step:
      wait_reduced();
      add_tied();
      global_norm();
      return compute(action, [&] { step(); });
    case Kind::stash:
    case Kind::drop:
      return;  // flush schedules have one version: pipedream::check has seen to that
  }
}

// What takes a stage's time, and nothing that it waits for: a span of the timeline.
template <class Work>
void Pipeline::compute(const Action& action, Work&& work) {
  const auto mark = context_.timeline.mark(pipedream::to_text(action));
  pace_.run(action, work);
}

Ticket Pipeline::send(const at::Tensor& t, const Action& action) {
  Ticket ticket = context_.comm.send(t, peer(action));
  if (options_.sends == Sends::blocking) ticket.wait();
  return ticket;
}

void Pipeline::forward(const Action& action, const Slot& slot, const Batch& batch) {
  if (slot.input >= 0) received_x_[slot.input].wait();
  sent_x_[slot.set].wait();
  compute(action, [&] { stage_.forward(share_.schedule.position(action), batch, slot); });
}

void Pipeline::backward(const Action& action, const Slot& slot, const Batch& batch) {
  const Write write = action.microbatch == 0 ? Write::overwrite : Write::accumulate;
  const bool last = action.microbatch + 1 == share_.schedule.microbatches;  // of this chunk: backwards ascend
  const auto done = [&](int unit) { reduce_grads(unit, last); };
  const int position = share_.schedule.position(action);
  if (action.kind == Kind::backward_weights)
    return compute(action, [&] { stage_.backward_weights(position, slot, write, done); });
  if (slot.grad_in >= 0) received_grad_[slot.grad_in].wait();
  compute(action, [&] {
    stage_.backward(position, batch, slot, write, sums_, done, [&] {
      if (slot.grad_out >= 0) sent_grad_[slot.grad_out].wait();
    });
  });
}

// [anchor: reduce-over-replicas]
// Each unit leaves behind its last micro-batch, as in lesson 01, but over the ranks of this stage alone; where
// states are cut, as in lesson 02: to the replica that owns the slice.
void Pipeline::reduce_grads(int unit, bool last_micro_batch) {
  if (!replicas_ || !last_micro_batch) return;
  std::vector<Stage::Held>& held = stage_.held();
  for (std::size_t i = 0; i < held.size(); ++i) {
    Stage::Held& h = held[i];
    // The copy of wte is complete when the head is.
    if ((h.copy ? share_.layout.last_unit() : h.unit) != unit) continue;
    reduced_[i] = options_.states == ReplicaStates::whole ? replicas_->all_reduce(h.grads)
                                                          : replicas_->reduce_scatter(h.grads, h.grads_slice);
  }
}

void Pipeline::wait_reduced() {
  for (Ticket& ticket : reduced_) ticket.wait();
}

// [anchor: tied-on-both-ends]
// wte's gradient has two parts: the embedding's on the first stage, the head's on the last. They meet once a
// step, and both copies take the same step with their sum.
void Pipeline::add_tied() {
  if (!ends_) return;
  at::Tensor grad = stage_.tied_grad();
  if (grad.defined()) ends_->all_reduce(grad).wait();
}

// [anchor: one-norm-over-stages]
// The only place where the stages wait for each other as a whole. The tied copy's square counts on the first
// stage only; each replica squares its slice.
void Pipeline::global_norm() {
  std::vector<at::Tensor> mine;
  for (const Stage::Held& h : stage_.held()) {
    if (!h.copy) mine.push_back(slice_of_rank(share_.layout, h.unit, Rank{share_.replica}).of_unit(h.grads));
  }
  add_sums_of_squares(mine, sums_);
  finish_sums(sums_);
  context_.comm.all_reduce(sums_).wait();
  global_norm_and_clip(sums_, context_.shape.workload.optim.clip, context_.scalars);
}

// The tied copies too: the same numbers in, the same bits out.
void Pipeline::step() {
  for (Stage::Held& h : stage_.held())
    if (!h.own.empty()) step_unit(h.own);
  if (options_.states == ReplicaStates::sharded) publish_params();
}

void Pipeline::step_unit(OwnedSlice& s) {
  const Workload& w = context_.shape.workload;
  adamw_step(hyper_of(w.optim), context_.scalars, share_.layout.decay_ranges(s.unit, s.segment, s.range),
             s.grads, s.master, s.momentum, s.variance, w.precision.has_master() ? &s.params : nullptr);
}

// Lesson 02's publish, between the replicas of one stage. Every replica has every slice when the step ends.
void Pipeline::publish_params() {
  if (!replicas_) return;
  for (std::size_t i = 0; i < published_.size(); ++i)
    published_[i] = replicas_->all_gather(stage_.held()[i].params_slice, stage_.held()[i].params);
  for (Ticket& ticket : published_) ticket.wait();
}

// Evaluation: one batch after the other, forward alone.
void Pipeline::forward_loss(const Batch& batch, at::Tensor& sums) {
  const pipedream::Schedule& schedule = share_.schedule;
  for (int chunk = 0; chunk < schedule.chunks; ++chunk) {
    const int position = chunk * schedule.stages + share_.stage, stages = schedule.stages;
    const bool alone = stages == 1;
    Slot slot{.set = alone ? chunk : 0, .input = 0};
    if (alone && position > 0) slot.from_set = chunk - 1;
    if (!alone && position > 0)
      context_.comm.recv(stage_.input(slot), rank_of_stage((position - 1) % stages)).wait();
    stage_.forward(position, batch, slot);
    if (share_.has_head(position)) {
      stage_.head_loss(batch, slot.set, sums);
    } else if (!alone) {
      context_.comm.send(stage_.output(slot.set), rank_of_stage((position + 1) % stages)).wait();
    }
  }
}

// [anchor: verify-copies]
// The replicas of this stage, and the two copies of wte, are equal to the bit.
void Pipeline::after_step(std::int64_t step) {
  pace_.check(step);
  if (options_.verify_replicas == 0 || (step + 1) % options_.verify_replicas != 0) return;
  for (const Stage::Held& held : stage_.held()) {
    if (replicas_) compare(*replicas_, held, held.copy ? share_.tied : held.params.numel(), step);
    if (ends_ && held.unit == 0) compare(*ends_, held, share_.tied, step);
  }
}

void Pipeline::compare(Communicator& group, const Stage::Held& held, std::int64_t elements,
                       std::int64_t step) {
  at::Tensor mine = at::empty({1}, at::kLong), all = at::empty({to_int(group.size())}, at::kLong);
  mine.mutable_data_ptr<std::int64_t>()[0] = replica_hash(held.params.narrow(0, 0, elements));
  group.all_gather(mine, all).wait();
  const int odd = first_different(all);
  if (odd < 0) return;
  throw ClaimError(
      fmt::format("step {}: two copies of unit {} differ: they must stay equal to the bit", step, held.unit));
}

std::optional<Timetable> Pipeline::timetable(Communicator& comm) {
  return timetable_of(share_, options_, context_.shape, context_.timeline, comm);
}

Rank Pipeline::peer(const Action& action) const {
  return rank_of_stage(pipedream::peer_of(share_.schedule, action));
}

// Of this replica.
Rank Pipeline::rank_of_stage(int stage) const { return Rank{stage * share_.replicas + share_.replica}; }

}  // namespace sc
