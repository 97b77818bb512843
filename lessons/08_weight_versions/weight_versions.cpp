#include "weight_versions.h"

#include <ATen/ops/sqrt.h>
#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <limits>

#include "common/base/check.h"
#include "common/optim/lr_schedule.h"
#include "steady.h"

namespace sc {

using pipedream::Kind;

WeightVersions::WeightVersions(RunContext& context, const Options& options)
    : context_(context),
      endless_(context.shape, options),
      options_(options),
      executor_(context, endless_.share, options),
      stage_(executor_.stage()),
      slots_(endless_.share.schedule),
      everyone_(context.comm.split(0)),
      evaluated_(stage_.sums()),
      summed_(static_cast<std::size_t>(endless_.norm_lag + 1)),
      results_left_(static_cast<std::size_t>(endless_.result_lag + 2)),
      tags_(static_cast<std::size_t>(endless_.share.slots.pools.weights)),
      forward_read_(static_cast<std::size_t>(context.shape.stages)),
      since_(context.first_step) {
  const std::int64_t sums = endless_.numbers_of_sums(), results = endless_.numbers_of_results();
  const at::Tensor numbers = context.ledger.zeros(Purpose::workspace, "sums and results in flight",
                                                  {2 * sums + 4 + results}, DType::f64);
  sums_ = numbers.narrow(0, 0, sums).view({-1, 4});
  own_sums_ = numbers.narrow(0, sums, sums).view({-1, 4});
  clip_by_ = numbers.narrow(0, 2 * sums, 4);
  results_ = numbers.narrow(0, 2 * sums + 4, results).view({-1, Endless::kResult});
  divisor_ = context.ledger.zeros(Purpose::workspace, "divisor", {}, DType::f32);
  results_host_ =
      context.ledger.zeros(Purpose::workspace, "results_host", {results}, DType::f64, Place::pinned)
          .view({-1, Endless::kResult});
  const BatchConfig& batch = context.shape.workload.batch;
  if (endless_.keeps_tokens())
    tokens_ = context.ledger.zeros(Purpose::workspace, "tokens in flight",
                                   {context.shape.stages, batch.micro, batch.sequence}, DType::i64);
  context.timeline.keep_recent(kTimedSteps);
  executor_.warm_up();
  warm_up();
}

// One window of a list without an end: this step's forwards, and the backwards and updates that have come due. What
// the step came to is known some windows later, when stage 0 has made its updates too.
StepResult WeightVersions::train_step(std::span<const Batch> micro_batches) {
  execute(endless_.windows.window(endless_.share.stage, windows_), micro_batches);
  const std::int64_t complete = windows_++ - endless_.result_lag;
  send_result(complete);
  return result_of(complete - 1);  // its numbers left a window ago: nobody waits for this one
}

void WeightVersions::execute(const std::vector<Action>& actions, std::span<const Batch> micro_batches) {
  for (std::size_t i = 0; i < actions.size(); ++i) {
    executor_.comes_to(i, actions[i]);
    perform(actions[i], slots_.next(actions[i]), micro_batches);
  }
}

void WeightVersions::perform(const Action& action, const Slot& slot, std::span<const Batch> micro_batches) {
  switch (action.kind) {
    case Kind::forward:
      return forward(action, slot, micro_batches[in_window(action)]);
    case Kind::backward:
      return backward(action, slot, micro_batches);
    case Kind::step:
      return update(action, slot);
    default:  // a message; and what stash and drop say the slots know already: which buffer is free
      return executor_.perform(action, slot, nullptr, nullptr);
  }
}

// [anchor: the-version-it-reads]
// Every computation reads the buffer that its slot names; the tag says which version was written there last.
void WeightVersions::require_version(const Action& action, const Slot& slot) const {
  const int there = tags_[slot.weights];
  if (there == action.version) return;
  throw ClaimError(fmt::format("stage {}: {} finds version {} of the weights", endless_.share.stage,
                               pipedream::to_text(action), there));
}

void WeightVersions::forward(const Action& action, const Slot& slot, const Batch& batch) {
  require_version(action, slot);
  const auto in_flight = static_cast<std::size_t>(action.microbatch % endless_.share.schedule.stages);
  forward_read_[in_flight] = tags_[slot.weights];
  if (tokens_.defined()) tokens_[static_cast<std::int64_t>(in_flight)].copy_(batch.tokens, true);
  executor_.perform(action, slot, &batch, nullptr);
}

void WeightVersions::backward(const Action& action, const Slot& slot, std::span<const Batch> micro_batches) {
  require_version(action, slot);
  const int newest = static_cast<int>(updates_);
  ++seen_.forward[newest - forward_read_[action.microbatch % endless_.share.schedule.stages]];
  ++seen_.backward[newest - tags_[slot.weights]];
  const Batch batch = batch_of_backward(action, micro_batches);
  at::Tensor sums = sums_[updates_ % sums_.size(0)];
  const bool first = action.microbatch % endless_.update_every == 0;
  const Executor::Sum sum{.write = first ? Write::overwrite : Write::accumulate, .sums = sums};
  executor_.perform(action, slot, &batch, &sum);
}

// The last stage has the micro-batch's targets still, since it has just been forward there. The first one's tokens are
// those of a step before, which the loader has overwritten.
Batch WeightVersions::batch_of_backward(const Action& action, std::span<const Batch> micro_batches) {
  const Share& share = endless_.share;
  if (!share.last) {
    const std::int64_t in_flight = action.microbatch % share.schedule.stages;
    return {.tokens = tokens_.defined() ? tokens_[in_flight] : at::Tensor(), .targets = {}, .scale = {}};
  }
  Batch batch = micro_batches[in_window(action)];
  if (action.microbatch % endless_.update_every == 0) {
    // An update's loss is the mean over its own targets, not over the step's.
    std::int64_t targets = 0;
    for (std::int64_t i = 0; i < endless_.update_every; ++i)
      targets += micro_batches[in_window(action) + static_cast<std::size_t>(i)].with_loss;
    divisor_.copy_(batch.scale).mul_(0).add_(1.0 / static_cast<double>(std::max<std::int64_t>(1, targets)));
  }
  batch.scale = divisor_;  // what --inject has made of the step's scale, NaN, is in it
  return batch;
}

// An update of nothing, before the first step: on a GPU whatever a first use allocates is there when the second step is
// checked, in which stage 0 may make its first update.
void WeightVersions::warm_up() {
  sums_[0].fill_(std::numeric_limits<double>::quiet_NaN());  // as of a gradient that is not finite
  sum_over_stages(0);
  norm_and_clip(0);
  step(0, {});
  summed_[0].wait();
  sums_.zero_(), results_.zero_();
  tags_[0] = 0, noted_ = 0;
}

// [anchor: an-update]
// Nobody is waited for: the gradient of these micro-batches is complete on this stage, and so is the update.
void WeightVersions::update(const Action& action, const Slot& slot) {
  sum_over_stages(updates_);
  norm_and_clip(updates_);
  executor_.compute(action, [&] { step(updates_, slot); });
  ++updates_;
}

void WeightVersions::sum_over_stages(std::int64_t update) {
  at::Tensor sums = sums_[update % sums_.size(0)];
  std::vector<at::Tensor> grads;
  for (const Stage::Held& held : stage_.held()) grads.push_back(held.grads);
  add_sums_of_squares(grads, sums);
  finish_sums(sums);
  clip_by_.copy_(sums);  // before other stages' are added: whether this stage's gradient is finite
  own_sums_[update % sums_.size(0)].copy_(sums);
  summed_[update % sums_.size(0)] = everyone_->all_reduce(sums);
}

// [anchor: lagged-norm]
// A stage may wait for the norm only as long as nobody needs its next weights. The last stage needs them at once, and
// stage 0 has its part of this gradient S - 1 micro-batches later: so an update is clipped by the norm of the update
// before it that all stages have made by now. The first ones are not clipped.
void WeightVersions::norm_and_clip(std::int64_t update) {
  const std::int64_t known = update - endless_.norm_lag;
  if (known >= 0) {
    note_sums(known);
    at::Tensor sums = sums_[known % sums_.size(0)];
    clip_by_[kSquares].copy_(sums[kSquares]);
    clip_by_[kNonFinite].add_(sums[kNonFinite]);
    sums.zero_();  // for the update after this one
  }
  global_norm_and_clip(clip_by_, known >= 0 ? context_.shape.workload.optim.clip : 0, context_.scalars);
}

// [anchor: next-version]
// The newest weights become the next version where they are, unless a micro-batch in flight still needs them: then the
// next version is written to a free buffer. In 16 bits that costs nothing, since AdamW writes its rounded result
// anyway; in fp32 the weights are copied first.
void WeightVersions::step(std::int64_t update, const Slot& slot) {
  const Workload& w = context_.shape.workload;
  at::Tensor lr = context_.scalars.lr;
  lr.fill_(learning_rate_of(update));
  stage_.move_newest(slot.weights_out);
  for (Stage::Held& held : stage_.held()) {
    OwnedSlice& s = held.own;
    adamw_step(hyper_of(w.optim), context_.scalars,
               endless_.share.layout.decay_ranges(s.unit, s.segment, s.range), s.grads, s.master, s.momentum,
               s.variance, w.precision.has_master() ? &s.params : nullptr);
  }
  tags_[slot.weights_out] = static_cast<int>(update) + 1;
}

// Warm-up and decay count updates.
double WeightVersions::learning_rate_of(std::int64_t update) const {
  const Workload& w = context_.shape.workload;
  return learning_rate(w.optim, since_ * endless_.updates_a_step + update, w.steps * endless_.updates_a_step);
}

// What an update came to on all stages goes to its step's result: losses and tokens are added, the norm is the last
// one's.
void WeightVersions::note_sums(std::int64_t update) {
  summed_[update % sums_.size(0)].wait();
  const at::Tensor sums = sums_[update % sums_.size(0)];
  at::Tensor result = results_[update / endless_.updates_a_step % results_.size(0)];
  if (update % endless_.updates_a_step == 0) result.zero_();
  for (const int i : {kLossSum, kTokens, kNonFinite}) result[i].add_(sums[i]);
  result[kSquares].copy_(sums[kSquares]);
  at::Tensor norm = result[4];
  at::sqrt_out(norm, sums[kSquares]);
  noted_ = update + 1;
}

// To the host, beside whatever the device does next. In the first windows no step is complete, and zeros go.
void WeightVersions::send_result(std::int64_t step) {
  if (noted_ < std::max<std::int64_t>(0, step + 1) * endless_.updates_a_step)
    throw ClaimError(fmt::format("step {} is not complete where every stage should know it", step));
  const std::int64_t n = results_.size(0), i = (step + n) % n;
  at::Tensor host = results_host_[i];
  results_left_[static_cast<std::size_t>(i)] = context_.copies.to_host(results_[i], host);
}

StepResult WeightVersions::result_of(std::int64_t step) {
  const std::int64_t n = results_.size(0), i = (step + n) % n;
  results_left_[static_cast<std::size_t>(i)].wait_on_host();
  if (step < 0) return {};
  return {.sums = results_host_[i].narrow(0, 0, 4),
          .grad_norm = results_host_[i][4],
          .of_step = since_ + step,
          .lr = learning_rate_of((step + 1) * endless_.updates_a_step - 1)};
}

// [anchor: drain]
// The backwards that are left, stage after stage, and their updates. What comes after it would have to fill the pipeline
// anew: a drain between two steps would change what follows.
std::vector<StepResult> WeightVersions::drain() {
  execute(endless_.windows.rest(endless_.share.stage, windows_), {});
  executor_.wait_sent();
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
  return steady_timetable(endless_, options_, context_.timeline, since_, seen_, comm);
}

// With the newest weights, wherever they are. After drain().
void WeightVersions::forward_loss(const Batch& batch, at::Tensor& sums) {
  const auto newest = std::ranges::max_element(tags_);
  executor_.forward_loss(batch, static_cast<int>(newest - tags_.begin()), sums);
}

}  // namespace sc
