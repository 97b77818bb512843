#include "pipeline.h"

#include "common/pipeline/measured.h"
#include "common/strategy/replica_hash.h"

namespace sc {

using pipedream::Action;
using pipedream::Kind;

// [anchor: perform]
// One optimizer step: this stage's list, as pipedream proved it. A receive is posted and does not block:
// whoever needs the value waits for it. Nor does a send: whoever uses its buffer again waits for it, be it
// for a receive.
StepResult Pipeline::train_step(std::span<const Batch> micro_batches) {
  sums_.zero_();
  for (std::size_t i = 0; i < share_.actions().size(); ++i) {
    const Action& a = share_.actions()[i];
    const Slot& slot = share_.slots.of[i];
    context_.timeline.comes_to(share_.in_words(i, a));
    switch (a.kind) {
      case Kind::receive_activation:
        messages_.receive_activation(a, slot);
        break;
      case Kind::forward:
        forward(a, slot, micro_batches[static_cast<std::size_t>(a.microbatch)]);
        break;
      case Kind::send_activation:
        messages_.send_activation(a, slot);
        break;
      case Kind::receive_gradient:
        messages_.wait_gradient_sent(slot.grad_in);
        messages_.receive_gradient(a, slot);
        break;
      case Kind::backward:
      case Kind::backward_input:
      case Kind::backward_weights:
        backward(a, slot, micro_batches[static_cast<std::size_t>(a.microbatch)]);
        break;
      case Kind::send_gradient:
        messages_.send_gradient(a, slot);
        break;
      case Kind::step:
        wait_reduced();
        add_tied();
        global_norm();
        step(a);
        break;
      case Kind::stash:
      case Kind::drop:
        break;  // of schedules without a flush, which this lesson refuses
    }
  }
  messages_.wait_sent();  // nothing of a step outlives it: one graph can hold it
  return {sums_, context_.scalars.grad_norm};
}

void Pipeline::forward(const Action& a, const Slot& slot, const Batch& batch) {
  messages_.wait_activation(slot);
  messages_.wait_activation_sent(slot);
  const auto timed = pace_.turn(a);
  stage_.forward(share_.schedule.position(a), batch.tokens, slot);
}

// [anchor: backward]
// Last block first. A gradient of weights is the sum over the step's micro-batches, of a chunk in ascending
// order: with the last one it is complete, and leaves while the blocks before it compute.
void Pipeline::backward(const Action& a, const Slot& slot, const Batch& batch) {
  const int position = share_.schedule.position(a);
  const Part& part = share_.part(position);
  const Halves halves = halves_of(a.kind);
  const Write write = a.microbatch == 0 ? Write::overwrite : Write::accumulate;
  const bool last = a.microbatch + 1 == share_.schedule.microbatches;
  if (halves.inputs) messages_.wait_gradient(slot);
  const auto timed = pace_.turn(a);
  if (halves.inputs && share_.has_head(position)) {
    stage_.head(batch.targets, batch.scale, slot, write, sums_);
    if (last) reduce_grads(share_.layout.last_unit());
  }
  for (int unit = part.last(); unit >= part.first; --unit) {
    if (halves.inputs && unit == part.first)
      messages_.wait_gradient_sent(slot.grad_out);  // this one's goes there
    stage_.backward(unit, slot, write, halves);
    if (halves.weights && last) reduce_grads(unit);
  }
  if (halves.inputs && share_.embeds(position)) {
    stage_.embed_backward(batch.tokens, slot, write);
    if (last) reduce_grads(0);
  }
}

// [anchor: reduce-over-replicas]
// Each unit leaves after its last micro-batch, as in lesson 01, but over the ranks of this stage alone; where
// states are cut, as in lesson 02: to the replica that owns the slice.
void Pipeline::reduce_grads(int unit) {
  if (!replicas_) return;
  std::vector<Stage::Held>& held = stage_.held();
  for (std::size_t i = 0; i < held.size(); ++i) {
    Stage::Held& h = held[i];
    if (completed_by(h) != unit) continue;
    const What what{OpPurpose::gradients, h.unit};
    reduced_[i] = options_.states == ReplicaStates::whole
                      ? replicas_->all_reduce(h.grads, what)
                      : replicas_->reduce_scatter(h.grads, h.grads_slice, what);
  }
}

// The copy of wte is complete when the head is.
int Pipeline::completed_by(const Stage::Held& held) const {
  return held.copy ? share_.layout.last_unit() : held.unit;
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
  if (grad.defined()) ends_->all_reduce(grad, {OpPurpose::gradients, 0}).wait();
}

// [anchor: one-norm-over-stages]
// The only place where the stages wait for each other as a whole. The tied copy's square counts on the first
// stage only; each replica squares its slice.
void Pipeline::global_norm() {
  std::vector<at::Tensor> mine;
  for (const Stage::Held& h : stage_.held()) {
    if (squares(h))
      mine.push_back(slice_of_rank(share_.layout, h.unit, Rank{share_.replica}, h.segment).of_unit(h.grads));
  }
  add_sums_of_squares(mine, sums_);
  finish_sums(sums_);
  context_.comm.all_reduce(sums_, {OpPurpose::sums}).wait();
  global_norm_and_clip(sums_, context_.shape.workload.optim.clip, context_.scalars);
}

// The tied copies too: the same numbers in, the same bits out.
void Pipeline::step(const Action& action) {
  const auto timed = pace_.turn(action);
  for (Stage::Held& h : stage_.held())
    if (!h.own.empty()) step_unit(h.own);
  publish_params();
}

void Pipeline::step_unit(OwnedSlice& s) {
  const Workload& w = context_.shape.workload;
  adamw_step(hyper_of(w.optim), context_.scalars, share_.layout.decay_ranges(s.unit, s.segment, s.range),
             s.grads, s.master, s.momentum, s.variance, w.precision.has_master() ? &s.params : nullptr);
}

// Lesson 02's publish, between the replicas of one stage. Every replica has every slice when the step ends.
void Pipeline::publish_params() {
  if (share_.shards == 1) return;
  for (std::size_t i = 0; i < published_.size(); ++i) {
    Stage::Held& h = stage_.held()[i];
    published_[i] = replicas_->all_gather(h.params_slice, h.params, {OpPurpose::parameters, h.unit});
  }
  for (Ticket& ticket : published_) ticket.wait();
}

void Pipeline::after_step(std::int64_t step) {
  pace_.check(step);
  if (!verifies_after(step, options_.verify_replicas)) return;
  if (compare_copies(step)) ++replica_checks_;
}

// [anchor: verify-copies]
// The replicas of this stage, and the two copies of wte, are equal to the bit.
bool Pipeline::compare_copies(std::int64_t step) {
  for (const Stage::Held& held : stage_.held()) {
    if (replicas_)
      require_equal_copies(*replicas_, held, held.copy ? share_.tied : held.params.numel(), step);
    if (ends_ && held.has_wte()) require_equal_copies(*ends_, held, share_.tied, step);
  }
  return replicas_ || ends_;
}

std::optional<Timetable> Pipeline::timetable(Communicator& comm) {
  const StageOptions options = stage_options(options_);
  pipedream::Family family{};
  const bool known = pipedream::family_from_name(options_.schedule, family);
  Timetable table = timetable_of({.share = share_,
                                  .options = options,
                                  .steps = {share_.schedule},
                                  .last_alone = context_.shape.device == DeviceKind::cuda,
                                  .family = known ? std::optional(family) : std::nullopt},
                                 context_.timeline, comm);
  if (table.rows.empty()) return {};
  return table;
}

}  // namespace sc
