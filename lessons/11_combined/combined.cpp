#include "combined.h"

namespace sc {

using pipedream::Action;
using pipedream::Kind;

// One optimizer step: this stage's list, as in lesson 07. What a block sends to its tensor group is in TensorStage; only the end of
// the step knows of all three axes.
StepResult Combined::train_step(std::span<const Batch> micro_batches) {
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
        reduce_replicated();
        for (Ticket& ticket : reduced_) ticket.wait();
        add_tied();
        global_norm();
        step();
        break;
      case Kind::stash:
      case Kind::drop:
        break;  // of schedules without a flush, which this lesson refuses
    }
  }
  messages_.wait_sent();
  return {sums_, context_.scalars.grad_norm};
}

void Combined::forward(const Action& a, const Slot& slot, const Batch& batch) {
  messages_.wait_activation(slot);
  messages_.wait_activation_sent(slot);
  const auto timed = pace_.turn(a);
  stage_.forward(share_.schedule.position(a), batch.tokens, slot);
}

// Lesson 07's: last block first; with the last micro-batch a block's part of each matrix is complete, and leaves.
void Combined::backward(const Action& a, const Slot& slot, const Batch& batch) {
  const int position = share_.schedule.position(a);
  const Part& part = share_.part(position);
  const Halves halves = halves_of(a.kind);
  const Write write = a.microbatch == 0 ? Write::overwrite : Write::accumulate;
  const bool last = a.microbatch + 1 == share_.schedule.microbatches;
  if (halves.inputs) messages_.wait_gradient(slot);
  const auto timed = pace_.turn(a);
  if (halves.inputs && share_.has_head(position)) {
    stage_.head(batch.targets, batch.scale, slot, write, sums_);
    if (last) reduce_cut(share_.layout.last_unit());
  }
  for (int unit = part.last(); unit >= part.first; --unit) {
    if (halves.inputs && unit == part.first) messages_.wait_gradient_sent(slot.grad_out);
    stage_.backward(unit, slot, write, halves);
    if (halves.weights && last) reduce_cut(unit);
  }
  if (halves.inputs && share_.embeds(position)) {
    stage_.embed_backward(batch.tokens, slot, write);
    if (last) reduce_cut(0);
  }
}

// [anchor: each-axis-its-sum]
// A part of a matrix is this tensor rank's alone: it is summed over the data group, as in lesson 07. The copy of wte is complete when
// the head is.
void Combined::reduce_cut(int unit) {
  const std::vector<Stage::Held>& held = stage_.held();
  for (std::size_t i = 0; i < held.size(); ++i)
    if (held[i].segment == Segment::sharded &&
        (held[i].copy ? share_.layout.last_unit() : held[i].unit) == unit)
      reduce(i);
}

// What every tensor rank has, of which each has seen its own tokens: over the tensor group, and then over the data group.
void Combined::reduce_replicated() {
  if (tensor_ && options_.tokens == TokenShare::split)
    tensor_->all_reduce(stage_.whole_grads(), {OpPurpose::gradients}).wait();
  const std::vector<Stage::Held>& held = stage_.held();
  for (std::size_t i = 0; i < held.size(); ++i)
    if (held[i].segment == Segment::whole) reduce(i);
}

void Combined::reduce(std::size_t i) {
  if (!data_) return;
  Stage::Held& h = stage_.held()[i];
  const What what{OpPurpose::gradients, h.unit};
  reduced_[i] = share_.shards == 1 ? data_->all_reduce(h.grads, what)
                                   : data_->reduce_scatter(h.grads, h.grads_slice, what);
}

void Combined::add_tied() {
  if (!ends_) return;
  at::Tensor grad = stage_.tied_grad();
  if (grad.defined()) ends_->all_reduce(grad, {OpPurpose::gradients, 0}).wait();
}

// [anchor: one-norm-over-the-mesh]
// Each rank squares its slice of its part; what every tensor rank has, the first of them; the tied copy, the first stage.
void Combined::global_norm() {
  std::vector<at::Tensor> mine;
  for (const Stage::Held& h : stage_.held()) {
    if (h.copy || (h.segment == Segment::whole && tensor_rank(context_.shape) > 0)) continue;
    mine.push_back(slice_of_rank(share_.layout, h.unit, Rank{share_.replica}, h.segment).of_unit(h.grads));
  }
  add_sums_of_squares(mine, sums_);
  finish_sums(sums_);
  context_.comm.all_reduce(sums_, {OpPurpose::sums}).wait();
  global_norm_and_clip(sums_, context_.shape.workload.optim.clip, context_.scalars);
}

// Lesson 02's in a data group: each steps its slices, and gathers the others'.
void Combined::step() {
  const Workload& w = context_.shape.workload;
  for (Stage::Held& h : stage_.held()) {
    OwnedSlice& s = h.own;
    if (s.empty()) continue;
    adamw_step(hyper_of(w.optim), context_.scalars, share_.layout.decay_ranges(s.unit, s.segment, s.range),
               s.grads, s.master, s.momentum, s.variance, w.precision.has_master() ? &s.params : nullptr);
  }
  if (!data_ || share_.shards == 1) return;
  std::vector<Ticket> published;
  for (Stage::Held& h : stage_.held())
    published.push_back(data_->all_gather(h.params_slice, h.params, {OpPurpose::parameters, h.unit}));
  for (Ticket& ticket : published) ticket.wait();
}

// [anchor: verify-copies]
// Along each axis what is held twice is equal to the bit: a data group's vectors, what every tensor rank has, both copies of wte.
void Combined::after_step(std::int64_t step) {
  if (options_.verify_replicas == 0 || (step + 1) % options_.verify_replicas != 0) return;
  for (const Stage::Held& held : stage_.held()) {
    if (data_) require_equal_copies(*data_, held, held.copy ? share_.tied : held.params.numel(), step);
    if (tensor_ && held.segment == Segment::whole)
      require_equal_copies(*tensor_, held, held.params.numel(), step);
    if (ends_ && held.unit == 0 && held.segment == Segment::sharded)
      require_equal_copies(*ends_, held, share_.tied, step);
  }
  if (data_ || tensor_ || ends_) ++replica_checks_;
}

}  // namespace sc
