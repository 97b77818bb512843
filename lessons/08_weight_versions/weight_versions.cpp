#include "weight_versions.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>

#include "common/base/check.h"
#include "common/optim/lr_schedule.h"

namespace sc {

using pipedream::Kind;

// New in this lesson: the list never ends, so that several versions of the weights are alive (load_params,
// update). A step is one window of it: its forwards, and the backwards and updates that have come due. The
// step's loss and norm are known `result_lag` windows later, when stage 0 has made its updates too.
StepResult WeightVersions::train_step(std::span<const Batch> micro_batches) {
  execute(endless_.windows.window(share_.stage, windows_), micro_batches);
  const std::int64_t complete = windows_++ - endless_.result_lag;
  sums_.send_result(complete);
  return result_of(complete - 1);  // what left a window ago has arrived: nobody waits
}

void WeightVersions::execute(const std::vector<Action>& actions, std::span<const Batch> micro_batches) {
  for (std::size_t i = 0; i < actions.size(); ++i) {
    const Action& a = actions[i];
    const Slot slot = slots_.next(a);
    context_.timeline.has_versions(static_cast<int>(slots_.versions().size()));
    context_.timeline.comes_to(share_.in_words(i, a));
    switch (a.kind) {
      case Kind::receive_activation:
        messages_.receive_activation(a, slot);
        break;
      case Kind::forward:
        forward(a, slot, micro_batches[in_window(a)]);
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
        backward(a, slot, micro_batches);  // always a whole one: lists without a flush have no halves
        break;
      case Kind::send_gradient:
        messages_.send_gradient(a, slot);
        break;
      case Kind::step:
        update(a, slot);
        break;
      case Kind::stash:
      case Kind::drop:
        break;  // slots_ has kept a version, or freed its buffer
    }
  }
}

// [anchor: the-version-it-reads]
// Every computation reads the buffer that its slot names, in which the version must be that the list says.
void WeightVersions::load_params(const Action& a, const Slot& slot) {
  const int there = versions_.in_buffer[slot.weights];
  if (there != a.version)
    throw ClaimError(fmt::format("stage {}: {} finds version {} of the weights", share_.stage,
                                 pipedream::to_text(a), there));
  stage_.load_params(slot.weights);
}

void WeightVersions::forward(const Action& a, const Slot& slot, const Batch& batch) {
  load_params(a, slot);
  MicroBatch& kept = alive_[a.microbatch];
  kept.version = a.version;
  if (kept.tokens.defined()) kept.tokens.copy_(batch.tokens, true);
  messages_.wait_activation(slot);
  messages_.wait_activation_sent(slot);
  const auto timed = pace_.turn(a);
  // Position p of the model is a run of blocks, which stage p % stages computes.
  stage_.forward(share_.schedule.position(a), batch.tokens, slot);
}

// [anchor: old-weights]
// Lesson 07's backward with the version that the list names: the one that this micro-batch's forward read,
// unless versions=none (PipeDream's load_old_params). The gradient goes to the newest weights all the same.
void WeightVersions::backward(const Action& a, const Slot& slot, std::span<const Batch> micro_batches) {
  load_params(a, slot);
  const int position = share_.schedule.position(a);
  const Part& part = share_.part(position);
  const MicroBatch& kept = alive_[a.microbatch];
  const bool first = a.microbatch % endless_.update_every == 0;
  const Write write = first ? Write::overwrite : Write::accumulate;
  // How many updates old the weights were that forward and backward read.
  ++versions_.read.forward[updates_ - kept.version], ++versions_.read.backward[updates_ - a.version];
  messages_.wait_gradient(slot);
  const auto timed = pace_.turn(a);
  if (share_.has_head(position)) {
    // The last stage has just computed this micro-batch's forward, so its targets are still there.
    const std::size_t i = in_window(a);
    if (first) set_scale(micro_batches.subspan(i, static_cast<std::size_t>(endless_.update_every)));
    stage_.head(micro_batches[i].targets, scale_, slot, write, sums_[updates_]);
  }
  for (int unit = part.last(); unit >= part.first; --unit) {
    // The gradient of the first block's input is sent from its buffer: the send before must have ended.
    if (unit == part.first) messages_.wait_gradient_sent(slot.grad_of_input);
    stage_.backward(unit, slot, write, {});
  }
  if (share_.embeds(position)) {
    // The micro-batch may be of an earlier step, whose tokens the loader has overwritten: they were kept.
    const at::Tensor& tokens = kept.tokens.defined() ? kept.tokens : micro_batches[in_window(a)].tokens;
    stage_.embed_backward(tokens, slot, write);
  }
}

// An update's loss is the mean over its own targets, not over the step's.
void WeightVersions::set_scale(std::span<const Batch> of_update) {
  std::int64_t targets = 0;
  for (const Batch& batch : of_update) targets += batch.with_loss;
  const auto divisor = static_cast<double>(std::max<std::int64_t>(1, targets));
  scale_.fill_(of_update[0].loss_factor / divisor);
}

// [anchor: an-update]
// No stage waits for another's part of this update: the gradient of these micro-batches is complete here, and
// the norm that clips it is an older one.
void WeightVersions::update(const Action& a, const Slot& slot) {
  global_norm();
  const auto timed = pace_.turn(a);
  at::Tensor lr = context_.scalars.lr;
  lr.fill_(learning_rate_of(updates_));
  // [anchor: next-version]
  // The newest weights become the next version in place, unless a micro-batch in flight still needs them:
  // then the next version is written to a free buffer. In 16 bits that costs no copy, since AdamW writes its
  // rounded result anyway; in fp32 the weights are copied first.
  stage_.move_newest(slot.next_weights);
  for (Stage::Held& held : stage_.held())
    if (!held.own.empty()) adamw_step(context_, share_.layout, held.own);
  versions_.in_buffer[slot.next_weights] = static_cast<int>(++updates_);
}

// [anchor: lagged-norm]
// The norm over all stages would make each stage wait for all. So an update is clipped by the norm of
// norm_lag updates before, when every stage has sent its part. The first norm_lag updates are not clipped.
// leave() sends this stage's part of this update's norm, and returns the older norm that has come.
void WeightVersions::global_norm() {
  at::Tensor& sums = sums_[updates_];
  std::vector<at::Tensor> mine;
  for (const Stage::Held& held : stage_.held()) mine.push_back(held.grads);
  add_sums_of_squares(mine, sums);
  finish_sums(sums);
  const bool clips = updates_ >= endless_.norm_lag;
  global_norm_and_clip(sums_.leave(updates_), clips ? context_.shape.workload.optim.clip : 0,
                       context_.scalars);
}

// The learning rate's warm-up and decay count updates, not steps.
double WeightVersions::learning_rate_of(std::int64_t update) const {
  const Workload& w = context_.shape.workload;
  return learning_rate(w.optim, since_ * endless_.updates_a_step + update, w.steps * endless_.updates_a_step);
}

// In the first windows no step is complete: zeros were sent, and their ticket is waited for as any other.
StepResult WeightVersions::result_of(std::int64_t step) {
  const at::Tensor& numbers = sums_.result(step);
  if (step < 0) return {};
  return {.sums = numbers.narrow(0, 0, 4),
          .grad_norm = numbers[Endless::kNorm],
          .of_step = since_ + step,
          .lr = learning_rate_of((step + 1) * endless_.updates_a_step - 1)};
}

// [anchor: drain]
// Executes the backwards that are left, stage after stage, and their updates. A step after a drain would have
// to fill the pipeline anew, with other versions: a drain between two steps would change what follows.
std::vector<StepResult> WeightVersions::drain() {
  execute(endless_.windows.rest(share_.stage, windows_), {});
  messages_.wait_sent();
  const std::int64_t unsent = windows_ - endless_.result_lag;
  std::vector<StepResult> results;
  for (std::int64_t step = std::max<std::int64_t>(0, unsent - 1); step < windows_; ++step) {
    if (step >= unsent) sums_.complete(step), sums_.send_result(step);
    results.push_back(result_of(step));
  }
  return results;
}

}  // namespace sc
