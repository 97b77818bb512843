#include <ATen/ops/sqrt.h>
#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <stdexcept>

#include "common/base/check.h"
#include "common/optim/lr_schedule.h"
#include "common/pipeline/measured.h"
#include "versions_read.h"
#include "weight_versions.h"

namespace sc {

using pipedream::Kind;

// One window of a list without an end: this step's forwards, and the backwards and updates that have come
// due. What the step came to is known some windows later, when stage 0 has made its updates too.
StepResult WeightVersions::train_step(std::span<const Batch> micro_batches) {
  execute(endless_.windows.window(endless_.share.stage, windows_), micro_batches);
  const std::int64_t complete = windows_ - endless_.result_lag;
  ++windows_;
  send_result(complete);
  return result_of(complete - 1);  // its numbers left a window ago: nobody waits for this one
}

void WeightVersions::execute(const std::vector<Action>& actions, std::span<const Batch> micro_batches) {
  for (std::size_t i = 0; i < actions.size(); ++i) {
    const Action& a = actions[i];
    const Slot slot = slots_.next(a);
    context_.timeline.has_versions(static_cast<int>(slots_.versions().size()));
    context_.timeline.comes_to(endless_.share.in_words(i, a));
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
        backward(a, slot, micro_batches);
        break;
      case Kind::send_gradient:
        messages_.send_gradient(a, slot);
        break;
      case Kind::step:
        update(a, slot);
        break;
      case Kind::stash:
      case Kind::drop:  // slots_ has kept a version, or freed its buffer
        break;
      case Kind::backward_input:
      case Kind::backward_weights:
        throw std::logic_error("no version rule has a list with halves of a backward");
    }
  }
}

// [anchor: the-version-it-reads]
// Every computation reads the buffer that its slot names; the tag says which version was written there last.
void WeightVersions::load_params(const Action& action, const Slot& slot) {
  const int there = tags_[slot.weights];
  if (there != action.version)
    throw ClaimError(fmt::format("stage {}: {} finds version {} of the weights", endless_.share.stage,
                                 pipedream::to_text(action), there));
  stage_.load_params(slot.weights);
}

void WeightVersions::forward(const Action& a, const Slot& slot, const Batch& batch) {
  load_params(a, slot);
  forward_read_[a.microbatch] = a.version;
  if (endless_.keeps_tokens()) tokens_[a.microbatch].copy_(batch.tokens, true);
  messages_.wait_activation(slot);
  messages_.wait_activation_sent(slot);
  const auto timed = pace_.turn(a);
  stage_.forward(endless_.share.stage, batch.tokens, slot);
}

// [anchor: old-weights]
// As lesson 07's, with the version that the list names: the one that this micro-batch's forward read, unless
// versions=none (PipeDream's load_old_params); and no exchange with replicas. Its gradient goes to the newest
// weights.
void WeightVersions::backward(const Action& a, const Slot& slot, std::span<const Batch> micro_batches) {
  load_params(a, slot);
  const Share& share = endless_.share;
  const Part& part = share.part(share.stage);
  const bool first = a.microbatch % endless_.update_every == 0;
  const Write write = first ? Write::overwrite : Write::accumulate;
  ++seen_.forward[updates_ - forward_read_[a.microbatch]], ++seen_.backward[updates_ - a.version];
  messages_.wait_gradient(slot);
  const auto timed = pace_.turn(a);
  if (share.last) {  // it has just been forward with this micro-batch, and has its targets still
    const std::size_t i = in_window(a);
    if (first) set_loss_scale(micro_batches.subspan(i, static_cast<std::size_t>(endless_.update_every)));
    stage_.head(micro_batches[i].targets, loss_scale_, slot, write, sums_[updates_]);
  }
  for (int unit = part.last(); unit >= part.first; --unit) {
    if (unit == part.first) messages_.wait_gradient_sent(slot.grad_of_input);
    stage_.backward(unit, slot, write, {});
  }
  if (!share.first) return;
  // Those of a step before, which the loader has overwritten, were kept.
  stage_.embed_backward(share.last ? micro_batches[in_window(a)].tokens : tokens_[a.microbatch], slot, write);
}

// An update's loss is the mean over its own targets, not over the step's. 0 times the step's scale is 0, or
// the NaN that --inject has put there.
void WeightVersions::set_loss_scale(std::span<const Batch> of_update) {
  std::int64_t targets = 0;
  for (const Batch& batch : of_update) targets += batch.with_loss;
  loss_scale_.copy_(of_update[0].scale)
      .mul_(0)
      .add_(1.0 / static_cast<double>(std::max<std::int64_t>(1, targets)));
}

// [anchor: an-update]
// No stage waits for another's part of this update: the gradient of these micro-batches is complete here, and
// the norm that clips it is an older one.
void WeightVersions::update(const Action& action, const Slot& slot) {
  sum_over_stages(updates_);
  norm_and_clip(updates_);
  const auto timed = pace_.turn(action);
  at::Tensor lr = context_.scalars.lr;
  lr.fill_(learning_rate_of(updates_));
  step(slot);
  tags_[slot.next_weights] = static_cast<int>(++updates_);
}

void WeightVersions::sum_over_stages(std::int64_t update) {
  at::Tensor& sums = sums_[update];
  std::vector<at::Tensor> grads;
  for (const Stage::Held& held : stage_.held()) grads.push_back(held.grads);
  add_sums_of_squares(grads, sums);
  finish_sums(sums);
  clip_by_.copy_(sums);  // before other stages' are added: whether this stage's gradient is finite
  own_sums_[update].copy_(sums);
  summed_[update] = everyone_->all_reduce(sums, {OpPurpose::sums});
}

// [anchor: lagged-norm]
// A stage may wait for the norm only as long as nobody needs its next weights. The last stage needs them at
// once, and stage 0 has its part of this gradient S - 1 micro-batches later: so an update is clipped by the
// norm of the update before it that all stages have made by now. The first ones are not clipped.
void WeightVersions::norm_and_clip(std::int64_t update) {
  const std::int64_t known = update - endless_.norm_lag;
  if (known >= 0) {
    note_sums(known);
    at::Tensor& sums = sums_[known];
    clip_by_[kSquares].copy_(sums[kSquares]);
    clip_by_[kNonFinite].add_(sums[kNonFinite]);
    sums.zero_();  // for the update after this one
  }
  global_norm_and_clip(clip_by_, known >= 0 ? context_.shape.workload.optim.clip : 0, context_.scalars);
}

// [anchor: next-version]
// The newest weights become the next version where they are, unless a micro-batch in flight still needs them:
// then the next version is written to a free buffer. In 16 bits that costs nothing, since AdamW writes its
// rounded result anyway; in fp32 the weights are copied first.
void WeightVersions::step(const Slot& slot) {
  const Workload& w = context_.shape.workload;
  stage_.move_newest(slot.next_weights);
  for (Stage::Held& held : stage_.held()) {
    OwnedSlice& s = held.own;
    adamw_step(hyper_of(w.optim), context_.scalars,
               endless_.share.layout.decay_ranges(s.unit, s.segment, s.range), s.grads, s.master, s.momentum,
               s.variance, w.precision.has_master() ? &s.params : nullptr);
  }
}

// Warm-up and decay count updates.
double WeightVersions::learning_rate_of(std::int64_t update) const {
  const Workload& w = context_.shape.workload;
  return learning_rate(w.optim, since_ * endless_.updates_a_step + update, w.steps * endless_.updates_a_step);
}

// What an update came to on all stages goes to its step's result: losses and tokens are added, the norm is
// the last one's.
void WeightVersions::note_sums(std::int64_t update) {
  summed_[update].wait();
  const at::Tensor& sums = sums_[update];
  at::Tensor& result = results_[update / endless_.updates_a_step];
  if (update % endless_.updates_a_step == 0) result.zero_();
  for (const int i : {kLossSum, kTokens, kNonFinite}) result[i].add_(sums[i]);
  result[kSquares].copy_(sums[kSquares]);
  at::Tensor norm = result[Endless::kNorm];
  at::sqrt_out(norm, sums[kSquares]);
  noted_ = update + 1;
}

// To the host, beside whatever the device does next. In the first windows no step is complete, and zeros go.
void WeightVersions::send_result(std::int64_t step) {
  if (noted_ < std::max<std::int64_t>(0, step + 1) * endless_.updates_a_step)
    throw ClaimError(fmt::format("step {} is not complete where every stage should know it", step));
  results_left_[step] = context_.copies.to_host(results_[step], results_host_[step], {OpPurpose::sums});
}

StepResult WeightVersions::result_of(std::int64_t step) {
  results_left_[step].wait_on_host();
  if (step < 0) return {};
  return {.sums = results_host_[step].narrow(0, 0, 4),
          .grad_norm = results_host_[step][Endless::kNorm],
          .of_step = since_ + step,
          .lr = learning_rate_of((step + 1) * endless_.updates_a_step - 1)};
}

// [anchor: drain]
// The backwards that are left, stage after stage, and their updates. What comes after it would have to fill
// the pipeline anew: a drain between two steps would change what follows.
std::vector<StepResult> WeightVersions::drain() {
  execute(endless_.windows.rest(endless_.share.stage, windows_), {});
  messages_.wait_sent();
  for (std::int64_t update = noted_; update < updates_; ++update) note_sums(update);
  std::vector<StepResult> results;
  for (std::int64_t step = std::max<std::int64_t>(0, windows_ - 1 - endless_.result_lag); step < windows_;
       ++step) {
    if (step >= windows_ - endless_.result_lag) send_result(step);
    results.push_back(result_of(step));
  }
  return results;
}

std::optional<Timetable> WeightVersions::timetable(Communicator& comm) {
  const StageOptions options = stage_options(options_);
  std::vector<VersionsRead> versions = gather_versions(seen_, comm);
  Timetable table =
      timetable_of({.share = endless_.share, .options = options, .steps = endless_.steps(), .first = since_},
                   context_.timeline, comm);
  table.length = "period", table.versions = std::move(versions);
  return table;
}

// With the newest weights, wherever they are. After drain().
void WeightVersions::forward_loss(const Batch& batch, at::Tensor& sums) {
  stage_.load_params(static_cast<int>(std::ranges::max_element(tags_) - tags_.begin()));
  messages_.forward_loss(batch, sums);
}

}  // namespace sc
