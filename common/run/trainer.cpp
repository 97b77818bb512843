#include "common/run/trainer.h"

#include <spdlog/fmt/fmt.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <iostream>

#include "common/base/text.h"
#include "common/config/workload_table.h"
#include "common/gpu/gpu_check.h"
#include "common/gpu/profile_comm.h"
#include "common/input/printable.h"
#include "common/optim/loss_scale.h"
#include "common/optim/lr_schedule.h"
#include "common/run/describe.h"
#include "common/run/resume.h"
#include "common/run/sample.h"
#include "common/strategy/nonfinite.h"
#include "common/strategy/weights.h"

namespace sc::detail {
namespace {

/// The number of skipped updates in a row that no outlier explains (optim.nonfinite=skip).
constexpr std::int64_t kMostSkipped = 10;

}  // namespace

Trainer::Trainer(const TrainJob& job, const Ground& ground) : job_(job), on_(ground) {
  if (on_.resume == nullptr) return;
  const checkpoint::Manifest& from = on_.resume->manifest();
  known_.resumed_from = {
      on_.resume->path().string(), from.lesson, from.step, from.world, goes_on_.rows, from.tokens};
  records_.resumed_from(*known_.resumed_from);
  skipped_in_a_row_ = from.skips_in_a_row;
}

// The tokens that the generated text begins with; none if no text is generated.
std::vector<TokenId> Trainer::make_prompt() const {
  const EvaluationFlags& asked = job_.line.evaluation;
  if (asked.sample.value_or(unasked_) == 0) return {};
  if (!asked.prompt) return beginning_of(data_.validation().count() > 0 ? data_.validation() : data_.train());
  const Workload& workload = shape_.workload;
  const std::vector<TokenId> prompt = make_tokenizer(workload.data.tokenizer)->encode(*asked.prompt);
  const auto unknown =
      std::ranges::find_if(prompt, [&](TokenId token) { return token >= workload.model.vocab; });
  if (unknown == prompt.end()) return prompt;
  std::string fix = "other words";
  if (workload.data.tokenizer != "byte")
    fix += ", or the tokenizer that the data were made with: --set data.tokenizer=byte";
  throw InputError(ExitCode::usage, "--prompt",
                   fmt::format("token {} of it is {}, and the model has {}", unknown - prompt.begin() + 1,
                               *unknown, human_count(workload.model.vocab)),
                   fix);
}

StepScalars Trainer::make_scalars() const {
  const auto zero = [this](DType dtype) {
    return on_.ledger.zeros(Purpose::workspace, "step scalars", {}, dtype);
  };
  StepScalars scalars{zero(DType::f32), zero(DType::i64), zero(DType::f32), zero(DType::f32), {}, {}};
  if (!scales_loss(shape_)) return scalars;
  scalars.loss_scale = on_.ledger.zeros(Purpose::workspace, "loss scaler", {}, DType::f32);
  scalars.loss_scale.fill_(LossScale::kStart);
  scalars.scaler_state = on_.ledger.zeros(Purpose::workspace, "loss scaler", {2}, DType::i64);
  return scalars;
}

RunRecord Trainer::record_of_start() const {
  if (!job_.speaks()) return {};
  const auto world = static_cast<int>(to_int(shape_.mesh.world()));
  RunRecord record{.lesson = job_.lesson.info.name,
                   .commit = source_commit(),
                   .command = job_.command,
                   .started = utc_text(std::chrono::system_clock::now()),
                   .workload = values_of(shape_.workload),
                   .workload_hash = workload_hash(shape_.workload),
                   .strategy = values_of(job_.lesson.options),
                   .device = shape_.device == DeviceKind::cuda ? "cuda" : "cpu",
                   .comm = std::string(name_of(shape_.comm)),
                   .world = world,
                   .threads = shape_.threads,
                   .versions = versions()};
  if (!job_.line.init.empty()) record.init = record_of_file(job_.line.init, job_.line.init);
  if (const std::optional<Path> own = data_.validation_path())
    record.validation = record_of_file(job_.line.evaluation.validation, *own);
  if (on_.gpu == nullptr) return record;
  record.versions.merge(gpu_versions(*on_.gpu));
  record.flops = flops_of(shape_.workload, on_.gpu->facts().name, world, job_.line.share_gpu);
  return record;
}

// Makes the strategy, and refuses settings that it cannot run with.
std::unique_ptr<Strategy> Trainer::make_strategy() {
  std::unique_ptr<Strategy> strategy = job_.lesson.make(context_);
  const CommandLine& line = job_.line;
  timeline_.on_coming_to([this](std::string_view what) {
    on_.world.watchdog().moved();
    if (!what.empty()) on_.world.comm().record().set_doing(what);
  });
  if (job_.speaks() && line.evaluation.sample > 0)
    (void)TextModel(shape_, strategy->layout().whole(), on_.ledger);  // checks that it fits
  if (!line.init.empty()) {
    for (const std::string& note : load_weights(*strategy, strategy->layout(), line.init))
      if (job_.speaks()) std::cout << printable(fmt::format("note: --init {}: {}\n", line.init, note));
  }
  if (on_.resume != nullptr) {
    const checkpoint::Manifest& from = on_.resume->manifest();
    restore_scalars(from, scalars_);
    ResumeFrom with{.pending = from.extra,
                    .restore = [&] { restore_state(*strategy, strategy->layout(), *on_.resume); },
                    .last_batches = [&] { return loader_.train(from.step - 1); }};
    if (!goes_on_.last_rows) with.last_batches = nullptr;
    bool all = false;
    checkpoint::reading_extra(on_.resume->path(), [&] { all = strategy->resume(with); });
    if (!all && job_.speaks())
      spdlog::warn("what {} had put off is dropped, since this {} cannot go on with it: {}",
                   shown(from.lesson), goes_on_.last_rows ? "strategy" : "order of rows",
                   checkpoint::put_off_in(from));
  }
  return strategy;
}

void Trainer::run() {
  try {
    announce();
    train();
    observer_.finish();
    on_.world.watchdog().step_begin(shape_.workload.steps);
    on_.world.comm().set_phase("check");
    if (saver_) saver_->settle(true);
    known_.timetable = strategy_->timetable(on_.world.comm());
    known_.counts = strategy_->counts(on_.world.comm());
    if (!job_.line.save.empty()) save_weights_if_finite();
    evaluate();
    inform(finish());
    on_.world.watchdog().step_end();
  } catch (...) {
    observer_.finish();
    on_.world.fail();
  }
}

// [anchor: one-step-after-another]
void Trainer::train() {
  const std::int64_t steps = shape_.workload.steps;
  for (std::int64_t step = job_.first_step; step < steps; ++step) {
    observer_.begin(step);
    const std::span<const Batch> batches = loader_.train(step, loss_factor(step));
    scalars_.lr.fill_(learning_rate(shape_.workload.optim, step, steps));
    fault_.at_step(job_.launch.rank, step);  // may not return
    const StepResult result = enqueue(batches, step);
    if (step + 1 < steps) loader_.prefetch(step + 1);                            // while the GPU computes
    if (const StepRecord* done = observer_.record(result)) skip_or_stop(*done);  // waits for the step
    observer_.check();
    strategy_->after_step(step);
    if (evaluates_after(step + 1)) observer_.validated(*validation_loss(step + 1));
    observer_.end();
    if (saver_) save(step + 1);
  }
  if (saver_ && job_.first_step == steps) save(steps);  // nothing to train: saved as it was resumed
  for (const StepResult& late : drain(*strategy_)) {
    if (const StepRecord* done = observer_.record(late)) skip_or_stop(*done);
    observer_.end();
  }
}

void Trainer::save(std::int64_t done) {
  on_.world.watchdog().step_begin(done);
  on_.world.comm().set_phase("check");
  saver_->settle(false);
  if (on_.world.stops_after().value_or(done) < done) save_and_end(done);
  if (saver_->due(done)) saver_->save(position_after(done));
  if (!saver_->saves().empty()) observer_.saved(saver_->saves().back().step);
  on_.world.watchdog().step_end();
}

// Saves and ends if a signal asked for it. Also called during an evaluation, which may be long.
void Trainer::end_if_asked(std::int64_t done) {
  if (!saver_) return;
  on_.world.comm().set_phase("check");
  if (!files_.all_say(!on_.world.stops_after())) save_and_end(done);
  on_.world.comm().set_phase("eval");
}

void Trainer::save_and_end(std::int64_t done) {
  observer_.end();
  on_.world.watchdog().step_begin(done);
  saver_->settle(true);
  if (saver_->saves().empty() || saver_->saves().back().step != done) saver_->save(position_after(done));
  saver_->settle(true);
  observer_.saved(done);
  on_.world.leave();
  on_.world.watchdog().end_now();
}

Position Trainer::position_after(std::int64_t done) const {
  Position position = position_of(scalars_, done, skipped_in_a_row_);
  position.rows = sampler_.position(done);
  position.tokens = goes_on_.tokens + (position.rows - goes_on_.rows) * sampler_.batch().sequence;
  return position;
}

// Skips a step or stops the run if its gradient is not finite; the update has then changed nothing, on any
// rank (global_norm_and_clip).
void Trainer::skip_or_stop(const StepRecord& step) {
  if (!step.skipped) {
    skipped_in_a_row_ = 0;
    return;
  }
  const bool scaled = scalars_.loss_scale.defined();
  const float scale = scaled ? scalars_.loss_scale.item<float>() : 0;
  // An overflow of fp16 is no error while a smaller scale may help.
  const bool expected = scaled && scale > LossScale::kLowest;
  const bool skips = scaled || shape_.workload.optim.nonfinite == OnNonFinite::skip;
  if (!skips || (!expected && ++skipped_in_a_row_ == kMostSkipped)) {
    on_.world.comm().set_phase("check");
    throw_nonfinite(*strategy_, step.loss, step.step, shape_, on_.world.comm());
  }
  observer_.note(fmt::format("step {}: the gradient is not finite; its update is skipped", step.step) +
                 (scaled ? fmt::format(", the loss scale is {} now", scale) : ""));
}

// The evaluation after the last step belongs to the end of the run.
bool Trainer::evaluates_after(std::int64_t done) const {
  const std::int64_t every = job_.line.evaluation.every;
  return every > 0 && done % every == 0 && done < shape_.workload.steps && sampler_.validation_rows() > 0;
}

Path Trainer::finish() {
  RecordingCommunicator& comm = on_.world.comm();
  comm.set_phase("check");
  if (const std::int64_t dropped = comm.dropped_tickets() + copies_.dropped_tickets(); dropped > 0) {
    throw ClaimError(
        fmt::format("rank {}: {} operations were never waited for", to_int(shape_.rank), dropped));
  }
  records_.gather(claims_, timeline_, strategy_->layout(), comm);
  if (profile_) {  // nothing else runs any more
    known_.profile = profile_->finish(to_aten(shape_.workload.precision.dtype));
    add_communication(observer_.steps(), job_.plans.own.operations, comm, *known_.profile);
  }
  known_.steps = observer_.steps();
  known_.seconds = seconds_since(began_);
  known_.allocator = claims_.allocator();
  if (on_.gpu != nullptr) known_.graph = on_.gpu->graph_nodes();
  if (saver_) known_.saves = saver_->saves();
  const auto writing = files_.writing();
  return records_.finish(known_);
}

// Writes what a user looks at. Weights and record are written already, so errors do not fail the run, unless
// they concern something that was asked for.
void Trainer::inform(const Path& record) {
  {
    const auto writing = files_.writing();
    records_.write_page(strategy_->layout());
  }
  files_.meet();
  write_text();
  if (!job_.speaks()) return;
  try {
    say_the_end(record);
  } catch (const std::exception& error) {
    spdlog::warn("the run has ended well, and cannot say all of it: {}", error.what());
  }
}

}  // namespace sc::detail
