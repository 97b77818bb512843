#include "pipeline.h"

#include "common/pipeline/measured.h"
#include "common/strategy/replica_hash.h"

namespace sc {

using pipedream::Action;
using pipedream::Kind;

// [anchor: perform]
// One optimizer step. New against lesson 02: a rank is a stage that holds its own blocks whole (its share_),
// and performs a list of actions that pipedream (pipedream/README.md) made, and proved to fit the other
// stages' lists. A Slot says which buffers an action uses (common/pipeline/slots.h). 1F1B is such a list; on
// stage 0 of four, with six micro-batches (F forward, SA sends an activation, RG receives a gradient, B
// backward):
//   F0 SA0  F1 SA1  F2 SA2              as many forwards as stages follow, until the first gradient comes
//   RG0 F3 SA3 B0                       a backward after each forward keeps no more than four micro-batches.
//   RG1 F4 SA4 B1                       Receives are posted a computation early, and travel during it
//   RG2 F5 SA5  RG3 B2  RG4 B3  RG5 B4  B5
//   step@1                              all stages know the norm, and this one updates its weights
// Neither a receive nor a send blocks: whoever needs the value, or writes to the buffer again, waits for it.
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
        update(a);
        break;
      case Kind::stash:
      case Kind::drop:
        break;  // only schedules without a flush have these, which this lesson refuses
    }
  }
  messages_.wait_sent();  // no message outlives its step, so that one CUDA graph can hold a step
  return {sums_, context_.scalars.grad_norm};
}

void Pipeline::forward(const Action& a, const Slot& slot, const Batch& batch) {
  messages_.wait_activation(slot);
  messages_.wait_activation_sent(slot);
  const auto timed = pace_.turn(a);  // with --pace it takes as long as its action costs
  // Position p of the model is a run of blocks, which stage p % stages computes.
  stage_.forward(share_.schedule.position(a), batch.tokens, slot);
}

// [anchor: backward]
// Last block first. A gradient of weights is the sum over the step's micro-batches, in ascending order: with
// the last of them it is complete, and leaves while the blocks before it compute.
void Pipeline::backward(const Action& a, const Slot& slot, const Batch& batch) {
  const int position = share_.schedule.position(a);
  const Part& part = share_.part(position);
  const Halves halves = halves_of(a.kind);  // the gradients of inputs, of weights (zero bubble), or both
  const Write write = a.microbatch == 0 ? Write::overwrite : Write::accumulate;
  const bool last = a.microbatch + 1 == share_.schedule.microbatches;
  if (halves.inputs) messages_.wait_gradient(slot);
  const auto timed = pace_.turn(a);
  if (halves.inputs && share_.has_head(position)) {
    stage_.head(batch.targets, batch.scale, slot, write, sums_);
    if (last) reduce_grads(share_.layout.last_unit());
  }
  for (int unit = part.last(); unit >= part.first; --unit) {
    // The gradient of the first block's input is sent from its buffer: the send before must have ended.
    if (halves.inputs && unit == part.first) messages_.wait_gradient_sent(slot.grad_of_input);
    stage_.backward(unit, slot, write, halves);
    if (halves.weights && last) reduce_grads(unit);
  }
  if (halves.inputs && share_.embeds(position)) {
    stage_.embed_backward(batch.tokens, slot, write);
    if (last) reduce_grads(0);
  }
}

// [anchor: reduce-over-replicas]
// A Held has this stage's vectors of a unit, its replica's slice and their tickets (common/pipeline/stage.h).
// A gradient leaves after the unit's last micro-batch, as in lesson 01, but over this stage's replicas alone.
// What lesson 11's tensor ranks all hold whole is complete later.
void Pipeline::reduce_grads(int unit) {
  for (Stage::Held& held : stage_.completed_by(unit))
    if (held.segment == Segment::sharded) reduce(held);
}

// Where replicas cut the states, the sum goes to the replica that owns the slice, as in lesson 02.
void Pipeline::reduce(Stage::Held& held) {
  if (!replicas_) return;
  const What what{OpPurpose::gradients, held.unit};
  held.reduced = options_.states == ReplicaStates::whole
                     ? replicas_->all_reduce(held.grads, what)
                     : replicas_->reduce_scatter(held.grads, held.grads_slice, what);
}

void Pipeline::wait_reduced() {
  for (Stage::Held& held : stage_.held()) held.reduced.wait();
}

void Pipeline::update(const Action& a) {
  wait_reduced();
  add_tied();
  global_norm();
  const auto timed = pace_.turn(a);
  for (Stage::Held& held : stage_.held())
    if (!held.own.empty()) adamw_step(context_, share_.layout, held.own);
  publish_params();
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
// The only place where all stages wait for each other. The tied copy's square counts on the first stage only;
// each replica squares its slice.
void Pipeline::global_norm() {
  std::vector<at::Tensor> mine;
  for (const Stage::Held& held : stage_.held()) {
    if (!squares(held)) continue;
    const Rank replica{share_.replica};
    mine.push_back(slice_of_rank(share_.layout, held.unit, replica, held.segment).of_unit(held.grads));
  }
  add_sums_of_squares(mine, sums_);
  finish_sums(sums_);
  context_.comm.all_reduce(sums_, {OpPurpose::sums}).wait();
  global_norm_and_clip(sums_, context_.shape.workload.optim.clip, context_.scalars);
}

// Lesson 02's publish, between the replicas of one stage. Every replica has every slice when the step ends.
void Pipeline::publish_params() {
  if (share_.shards == 1) return;
  for (Stage::Held& held : stage_.held())
    held.published =
        replicas_->all_gather(held.params_slice, held.params, {OpPurpose::parameters, held.unit});
  for (Stage::Held& held : stage_.held()) held.published.wait();
}

void Pipeline::after_step(std::int64_t step) {
  pace_.check(step);
  if (verifies_after(step, options_.verify_replicas) && compare_copies(step)) ++replica_checks_;
}

// [anchor: verify-copies]
// The replicas of this stage must be equal to the bit, and so must the two copies of wte.
bool Pipeline::compare_copies(std::int64_t step) {
  for (const Stage::Held& held : stage_.held()) {
    if (replicas_)
      require_equal_copies(*replicas_, held, held.copy ? share_.tied : held.params.numel(), step);
    if (ends_ && held.has_wte()) require_equal_copies(*ends_, held, share_.tied, step);
  }
  return replicas_ || ends_;
}

// For the page of a run: each stage's computations and when they should begin.
std::optional<Timetable> Pipeline::timetable(Communicator& comm) {
  pipedream::Family family{};
  const bool known = pipedream::family_from_name(options_.schedule, family);
  Timetable table = timetable_of({.share = share_,
                                  .options = stage_options(options_),
                                  .steps = {share_.schedule},
                                  .last_alone = context_.shape.device == DeviceKind::cuda,
                                  .family = known ? std::optional(family) : std::nullopt},
                                 context_.timeline, comm);
  if (table.rows.empty()) return {};
  return table;
}

}  // namespace sc
