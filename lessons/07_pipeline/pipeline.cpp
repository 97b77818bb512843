#include "pipeline.h"

#include <ATen/ops/empty.h>
#include <spdlog/fmt/fmt.h>

#include "common/base/check.h"
#include "common/strategy/replica_hash.h"
#include "measured.h"

namespace sc {

using pipedream::Action;
using pipedream::Kind;

// One optimizer step: this stage's list, as pipedream proved it.
StepResult Pipeline::train_step(std::span<const Batch> micro_batches) {
  sums_.zero_();
  const std::vector<Action>& actions = share_.actions();
  for (std::size_t i = 0; i < actions.size(); ++i) {
    executor_.comes_to(i, actions[i]);
    perform(actions[i], share_.slots.of[i], micro_batches);
  }
  executor_.wait_sent();  // nothing of a step outlives it: one graph can hold it
  return {sums_, context_.scalars.grad_norm};
}

// A gradient is the sum over the step's micro-batches, of a chunk in ascending order.
void Pipeline::perform(const Action& action, const Slot& slot, std::span<const Batch> micro_batches) {
  if (action.kind == Kind::step) {
    wait_reduced();
    add_tied();
    global_norm();
    return executor_.compute(action, [&] { step(); });
  }
  if (!pipedream::is_compute(action.kind)) return executor_.perform(action, slot, nullptr, nullptr);
  const bool last = action.microbatch + 1 == share_.schedule.microbatches;
  const Executor::Sum sum{.write = action.microbatch == 0 ? Write::overwrite : Write::accumulate,
                          .sums = sums_,
                          .done = [this, last](int unit) { reduce_grads(unit, last); }};
  executor_.perform(action, slot, &micro_batches[static_cast<std::size_t>(action.microbatch)], &sum);
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

// [anchor: verify-copies]
// The replicas of this stage, and the two copies of wte, are equal to the bit.
void Pipeline::after_step(std::int64_t step) {
  executor_.pace().check(step);
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

Pipeline::Pipeline(RunContext& context, const Options& options)
    : context_(context),
      options_(options),
      share_(context.shape, options),
      executor_(context, share_, options),
      stage_(executor_.stage()),
      sums_(stage_.sums()),
      reduced_(stage_.held().size()),
      published_(stage_.held().size()) {
  if (share_.replicas > 1) replicas_ = context.comm.split(share_.stage);
  if (share_.has_two_ends()) ends_ = context.comm.split(share_.is_an_end() ? share_.replica : -1);
  if (replicas_ && share_.shards > 1)
    for (Stage::Held& held : stage_.held()) replicas_->all_gather(held.params_slice, held.params).wait();
  context.timeline.keep_recent(kMeasuredSteps);
  executor_.warm_up();
}

std::optional<Timetable> Pipeline::timetable(Communicator& comm) {
  return timetable_of(share_, options_, context_.shape, context_.timeline, comm);
}

}  // namespace sc
