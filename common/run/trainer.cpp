#include "common/run/trainer.h"

#include <spdlog/fmt/fmt.h>

#include <iostream>

#include "common/base/text.h"
#include "common/gpu/gpu_check.h"
#include "common/gpu/profile_comm.h"
#include "common/optim/loss_scale.h"
#include "common/optim/lr_schedule.h"
#include "common/run/describe.h"
#include "common/run/failure.h"
#include "common/run/run_shape.h"
#include "common/run/sample.h"
#include "common/strategy/nonfinite.h"
#include "common/strategy/weights.h"

namespace sc::detail {
namespace {

/// optim.nonfinite=skip: so many skipped updates in a row are no outlier any more.
constexpr std::int64_t kMostSkipped = 10;

StepScalars make_scalars(const RunShape& shape, Ledger& ledger) {
  const auto zero = [&](DType dtype) { return ledger.zeros(Purpose::workspace, "step scalars", {}, dtype); };
  StepScalars scalars{zero(DType::f32), zero(DType::i64), zero(DType::f32), zero(DType::f32), {}, {}};
  if (!scales_loss(shape)) return scalars;
  scalars.loss_scale = ledger.zeros(Purpose::workspace, "loss scaler", {}, DType::f32);
  scalars.loss_scale.fill_(LossScale::kStart);
  scalars.scaler_state = ledger.zeros(Purpose::workspace, "loss scaler", {2}, DType::i64);
  return scalars;
}

RunFiles::OnGpu facts_of(const Gpu* gpu, const TrainJob& job) {
  if (gpu == nullptr) return {};
  const int ranks = static_cast<int>(to_int(job.launch.world));
  return {gpu_versions(*gpu), flops_of(job.config.workload, gpu->facts().name, ranks, job.line.share_gpu)};
}

}  // namespace

Trainer::Trainer(const TrainJob& job, const Ground& ground)
    : job_(job),
      on_(ground),
      shape_(shape_of_run(job)),
      fault_(fault_of(job)),
      file_ops_(posix_file_ops()),
      data_(Dataset::open(*file_ops_, shape_.workload, Path(STAGECRAFT_SOURCE_DIR) / ".cache")),
      sampler_(data_, shape_.workload),
      scalars_(make_scalars(shape_, on_.ledger)),
      loader_(sampler_, on_.ledger, {.rank = data_rank(shape_), .ranks = data_ranks(shape_)}),
      copies_(on_.gpu == nullptr ? make_host_copies(job.lesson.slow_links().copy_mbps) : make_gpu_copies(),
              on_.world.comm().shared_record()),
      context_{shape_, on_.world.comm(), on_.ledger, scalars_, copies_, timeline_},
      claims_(shape_, plan_of_run(job.lesson, shape_), job.lesson.comm_plan(shape_),
              {on_.ledger, on_.witness, on_.gpu}),
      profile_(job.line.profile ? std::make_unique<GpuProfile>() : nullptr),
      strategy_(make_strategy()),
      facts_(facts_of(on_.gpu, job)),
      records_(*file_ops_, job, shape_, facts_, on_.world.comm()),
      observer_(job, {shape_, on_.world, claims_, records_, timeline_, facts_.flops, began_}),
      runner_(job, {shape_, *strategy_, scalars_, fault_, on_.gpu, profile_.get()}, observer_) {}

// And what it can be refused for.
std::unique_ptr<AnyStrategy> Trainer::make_strategy() {
  std::unique_ptr<AnyStrategy> strategy = job_.lesson.make(context_);
  const CommandLine& line = job_.line;
  timeline_.on_coming_to([this](std::string_view what) { on_.world.comm().record().set_doing(what); });
  if (speaks() && line.sample > 0) (void)TextModel(shape_, strategy->layout(), on_.ledger);  // it fits
  if (speaks() && !line.save.empty()) check_save_path(*file_ops_, line.save);
  if (!line.init.empty()) load_weights(*strategy, strategy->layout(), line.init);
  return strategy;
}

void Trainer::run() {
  try {
    announce();
    train();
    observer_.finish();
    evaluate();
    finish();
  } catch (...) {
    observer_.finish();
    const Failure failure = current_failure(shape_.rank);
    on_.world.fail(failure.code, failure.text);
  }
}

void Trainer::train() {
  const std::int64_t steps = shape_.workload.steps;
  for (std::int64_t step = job_.first_step; step < steps; ++step) {
    observer_.begin(step);
    const std::span<const Batch> batches = loader_.train(step);
    scalars_.lr.fill_(learning_rate(shape_.workload.optim, step, steps));
    runner_.prepare(batches, step);
    const StepResult result = runner_.run(batches, step);
    if (step + 1 < steps) loader_.prefetch(step + 1);                            // while the GPU computes
    if (const StepRecord* done = observer_.record(result)) skip_or_stop(*done);  // waits for the step
    observer_.check();
    strategy_->after_step(step);
    observer_.end();
  }
  for (const StepResult& late : strategy_->drain())
    if (const StepRecord* done = observer_.record(late)) skip_or_stop(*done);
  observer_.end();
}

// Where a gradient is not finite the update has left everything as it was (global_norm_and_clip), on all
// ranks alike.
void Trainer::skip_or_stop(const StepRecord& step) {
  if (!step.skipped) {
    skipped_in_a_row_ = 0;
    return;
  }
  const bool scaled = scalars_.loss_scale.defined();
  const float scale = scaled ? scalars_.loss_scale.item<float>() : 0;
  // An overflow of fp16 is no fault as long as a smaller scale may help.
  const bool expected = scaled && scale > LossScale::kLowest;
  const bool skips = scaled || shape_.workload.optim.nonfinite == OnNonFinite::skip;
  if (!skips || (!expected && ++skipped_in_a_row_ == kMostSkipped)) {
    on_.world.comm().set_phase("check");
    throw_nonfinite(*strategy_, step.loss, step.step, on_.world.comm());
  }
  observer_.note(fmt::format("step {}: the gradient is not finite; its update is skipped", step.step) +
                 (scaled ? fmt::format(", the loss scale is {} now", scale) : ""));
}

void Trainer::evaluate() {
  on_.world.comm().set_phase("eval");
  on_.world.watchdog().step_begin(shape_.workload.steps);
  const std::span<const Batch> batches = loader_.validation();
  if (!batches.empty()) validation_loss_ = sc::evaluate(*strategy_, on_.world.comm(), batches);
  if (job_.line.sample > 0) sample();
  on_.world.watchdog().step_end();
}

void Trainer::sample() {
  const std::unique_ptr<Tokenizer> tokenizer = make_tokenizer(shape_.workload.data.tokenizer);
  const SampleSource source{shape_, strategy_->layout(), data_.validation(), tokenizer->vocab()};
  const Sample made = make_sample(*strategy_, source, on_.ledger, on_.world.comm(), job_.line.sample);
  if (speaks()) std::cout << "\n" << format_sample(made, *tokenizer, shape_.workload.seed);
}

void Trainer::finish() {
  RecordingCommunicator& comm = on_.world.comm();
  comm.set_phase("check");
  if (const std::int64_t dropped = comm.dropped_tickets() + copies_.dropped_tickets(); dropped > 0) {
    throw ClaimError(
        fmt::format("rank {}: {} operations were never waited for", to_int(shape_.rank), dropped));
  }
  records_.gather(claims_.memory(), claims_.operations(), claims_.measured(), timeline_.drawn(), comm);
  timetable_ = strategy_->timetable(comm);
  // After the last operation that all ranks share: rank 0 may write for long, and nobody may wait for it in
  // one.
  if (!job_.line.save.empty()) save_weights(*strategy_, strategy_->layout(), comm, job_.line.save);
  if (profile_) finish_profile();
  const Path written = records_.finish(
      {observer_.steps(), validation_loss_, seconds(), profiled_, claims_.allocator(), timetable_});
  if (speaks()) say_the_end(written);
}

// Nothing else runs any more.
void Trainer::finish_profile() {
  on_.world.watchdog().step_begin(shape_.workload.steps);
  profiled_ = profile_->finish(to_aten(shape_.workload.precision.dtype));
  add_communication(observer_.steps(), claims_.operations(), on_.world.comm(), *profiled_);
  on_.world.watchdog().step_end();
}

double Trainer::seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
}

void Trainer::announce() const {
  if (!speaks()) return;
  std::cout << describe_run(job_.lesson.info.name, shape_, job_.batch, job_.launch.launcher,
                            on_.gpu == nullptr ? "" : describe_gpu(on_.gpu->facts(), shape_, job_.graph()))
            << (on_.gpu == nullptr ? "" : warn_of_attention(on_.gpu->facts(), shape_))
            << fmt::format("  data     {}: {} training rows, {:.1f} steps an epoch\n",
                           shape_.workload.data.source, human_count(data_.train().count()),
                           sampler_.steps_per_epoch())
            << format_plan_table(rank_plans_of(job_.lesson, shape_), shape_.world, data_ranks(shape_))
            << job_.lesson.predict(shape_) << std::flush;
}

void Trainer::say_the_end(const Path& record) const {
  const std::vector<StepRecord>& steps = observer_.steps();
  std::cout << fmt::format("\nloss {:.4f} -> {:.4f}", steps.front().loss, steps.back().loss)
            << (validation_loss_ ? fmt::format(", validation {:.4f}", *validation_loss_) : std::string())
            << " nats a token, " << human_seconds(seconds()) << "\n";
  if (const std::int64_t skipped = skipped_updates(steps); skipped > 0)
    std::cout << skipped << " updates skipped: their gradient was not finite\n";
  std::cout << "\n" << claims_.report();
  if (timetable_) std::cout << format_timetable(*timetable_);
  if (profiled_) std::cout << format_profile(*profiled_);
  if (job_.other) std::cout << "\n" << format_comparison(records_.record(), *job_.other);
  if (!records_.trace().empty()) {
    std::cout << "trace: " << records_.trace().string() << " (the first " << kTracedSteps << " steps"
              << (on_.gpu != nullptr ? "; waits and compute at the GPU's times" : "") << ")\n";
  }
  std::cout << "record: " << record.string() << std::endl;
}

}  // namespace sc::detail
