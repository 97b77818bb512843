#include "common/run/trainer.h"

#include <c10/core/InferenceMode.h>
#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <atomic>
#include <iostream>
#include <limits>

#include "common/base/text.h"
#include "common/comm/nccl/nccl_communicator.h"
#include "common/comm/nccl/nccl_devices.h"
#include "common/data/loader.h"
#include "common/data/sampler.h"
#include "common/gpu/gpu_check.h"
#include "common/gpu/gpu_profile.h"
#include "common/gpu/profile_comm.h"
#include "common/memory/allocator_witness.h"
#include "common/optim/grad_norm.h"
#include "common/optim/loss_scale.h"
#include "common/optim/lr_schedule.h"
#include "common/records/progress.h"
#include "common/run/claims.h"
#include "common/run/describe.h"
#include "common/run/failure.h"
#include "common/run/run_files.h"
#include "common/run/run_shape.h"
#include "common/run/sample.h"
#include "common/run/world.h"
#include "common/strategy/nonfinite.h"
#include "common/strategy/weights.h"
#include "common/watch/fault.h"
#include "common/watch/gpu_moment.h"

namespace sc::detail {
namespace {

using Clock = std::chrono::steady_clock;

/// optim.nonfinite=skip: so many skipped updates in a row are no outlier any more.
constexpr std::int64_t kMostSkipped = 10;

double seconds_of(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

Fault parsed_fault(const TrainJob& job, const RunShape& shape) {
  const Fault fault = Fault::parse(job.line.inject, shape.world);
  if (fault.step() < shape.workload.steps) return fault;
  throw InputError(ExitCode::usage, "--inject " + job.line.inject,
                   fmt::format("the run ends after step {}", shape.workload.steps - 1),
                   "a smaller step (they count from 0), or more --steps");
}

/// One run on one rank. Everything that allocates does so in the constructor.
class Trainer {
 public:
  /// gpu: null on the CPU.
  Trainer(const TrainJob& job, World& world, Ledger& ledger, AllocatorWitness& witness, Gpu* gpu);
  ~Trainer() {
    world_.set_last_acts({});
    if (gpu_ != nullptr) gpu_->drop_graph();  // NCCL ends only when no graph holds its operations
  }
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;
  void run();

 private:
  void announce() const;
  void failed(int exit_code, const std::string& text);
  void interrupted(int signal);
  void train();
  void step(std::int64_t step);
  StepResult train_step(std::span<const Batch> batches, std::int64_t step);
  void poison_if_asked(std::span<const Batch> batches, std::int64_t step) const;
  StepRecord record_of(std::int64_t step, const StepResult& result, Clock::time_point began);
  [[nodiscard]] bool traces(std::int64_t step) const { return job_.line.trace && step < kTracedSteps; }
  [[nodiscard]] bool profiles(std::int64_t step) const { return profile_ && step >= kWarmupSteps; }
  void trace(std::int64_t step, Clock::time_point began, Clock::time_point ended);
  void stop_or_skip(const StepRecord& step);
  [[nodiscard]] RunFiles::Outcome outcome() const;
  void evaluate();
  void sample();
  void finish_profile();
  void finish();
  void say_the_end(const Path& record) const;
  [[nodiscard]] bool speaks() const { return shape_.rank == Rank{0}; }

  const TrainJob& job_;
  World& world_;
  Ledger& ledger_;
  Gpu* gpu_;
  bool graph_;
  Clock::time_point began_ = Clock::now();
  RunShape shape_;
  Fault fault_;
  std::unique_ptr<FileOps> files_;
  Dataset data_;
  Sampler sampler_;
  StepScalars scalars_;
  Loader loader_;
  RunContext context_;
  Claims claims_;
  std::unique_ptr<GpuProfile> profile_;  // --profile; before the strategy, whose model asks for it
  std::optional<Profile> profiled_;      // of it, at the end
  std::unique_ptr<AnyStrategy> strategy_;
  std::optional<ModelFlops> flops_;  // on a GPU
  std::optional<RunFiles> records_;  // made last: a run that cannot start leaves no folder
  Progress progress_;
  std::atomic<std::int64_t> step_now_ = 0;  // for the watchdog's thread
  std::vector<StepRecord> steps_;
  std::optional<double> validation_loss_;
  GpuOrigin gpu_began_;  // a traced step, on the GPU
  GpuMomentPtr gpu_ended_;
  StepResult captured_;  // of the graph: the same tensors at every replay
  std::int64_t skipped_in_a_row_ = 0;
};

Trainer::Trainer(const TrainJob& job, World& world, Ledger& ledger, AllocatorWitness& witness, Gpu* gpu)
    : job_(job),
      world_(world),
      ledger_(ledger),
      gpu_(gpu),
      graph_(job.line.graph.value_or(!job.line.profile && !job.line.share_gpu)),
      shape_(shape_of_run(job)),
      fault_(job.line.inject.empty() ? Fault() : parsed_fault(job, shape_)),
      files_(posix_file_ops()),
      data_(Dataset::open(*files_, shape_.workload, Path(STAGECRAFT_SOURCE_DIR) / ".cache")),
      sampler_(data_, shape_.workload),
      scalars_{ledger.zeros(Purpose::workspace, "step scalars", {}, DType::f32),
               ledger.zeros(Purpose::workspace, "step scalars", {}, DType::i64),
               ledger.zeros(Purpose::workspace, "step scalars", {}, DType::f32),
               ledger.zeros(Purpose::workspace, "step scalars", {}, DType::f32),
               {},
               {}},
      loader_(sampler_, ledger, {.rank = to_int(shape_.rank), .ranks = to_int(shape_.world)}),
      context_{shape_, world.comm(), ledger, scalars_},
      claims_(shape_, plan_of_run(job.lesson, shape_), job.lesson.comm_plan(shape_), ledger, witness, gpu),
      profile_(job.line.profile ? std::make_unique<GpuProfile>() : nullptr),
      strategy_(job.lesson.make(context_)),
      flops_(gpu == nullptr
                 ? std::nullopt
                 : std::optional(flops_of(shape_.workload, gpu->facts().name,
                                          static_cast<int>(to_int(shape_.world)), job.line.share_gpu))),
      progress_(std::cout, [] { return seconds_of(Clock::now().time_since_epoch()); },
                {.total_steps = shape_.workload.steps,
                 .quiet = !speaks(),
                 .terminal = on_terminal(),
                 .flops = flops_}) {
  if (scales_loss(shape_)) {
    scalars_.loss_scale = ledger.zeros(Purpose::workspace, "loss scaler", {}, DType::f32);
    scalars_.loss_scale.fill_(LossScale::kStart);
    scalars_.scaler_state = ledger.zeros(Purpose::workspace, "loss scaler", {2}, DType::i64);
  }
  if (speaks() && job.line.sample > 0) (void)TextModel(shape_, strategy_->layout(), ledger);  // it fits
  if (speaks() && !job.line.save.empty()) check_save_path(*files_, job.line.save);
  if (!job.line.init.empty()) load_weights(*strategy_, strategy_->layout(), job.line.init);
  const RunFiles::OnGpu on_gpu{gpu_ == nullptr ? std::map<std::string, std::string>() : gpu_versions(*gpu_),
                               flops_};
  records_.emplace(*files_, job, shape_, on_gpu, world.comm());
  world.set_last_acts({.failed = [this](int exit_code, const std::string& text) { failed(exit_code, text); },
                       .interrupted = [this](int signal) { interrupted(signal); }});
}

void Trainer::announce() const {
  if (!speaks()) return;
  std::cout << describe_run(job_.lesson.info.name, shape_, job_.batch, job_.launch.launcher,
                            gpu_ == nullptr ? "" : describe_gpu(gpu_->facts(), shape_, graph_))
            << (gpu_ == nullptr ? "" : warn_of_attention(gpu_->facts(), shape_))
            << fmt::format("  data     {}: {} training rows, {:.1f} steps an epoch\n",
                           shape_.workload.data.source, human_count(data_.train().count()),
                           sampler_.steps_per_epoch())
            << format_plan_table(claims_.memory(), claims_.operations(), shape_.world) << std::flush;
}

void Trainer::run() {
  try {
    train();
  } catch (...) {
    progress_.finish();
    const Failure failure = current_failure(shape_.rank);
    world_.fail(failure.code, failure.text);
  }
}

// Where the line of a run that went well stands, too.
void Trainer::failed(int exit_code, const std::string& text) {
  const Path record = records_->fail(exit_code, text, seconds_of(Clock::now() - began_));
  if (!record.empty()) std::cout << fresh_line() << "record: " << record.string() << std::endl;
}

void Trainer::interrupted(int signal) {
  if (!speaks()) return;
  const std::string what = fmt::format("interrupted at step {}", step_now_.load());
  const Path record = records_->fail(128 + signal, what, seconds_of(Clock::now() - began_));
  std::cout << fresh_line() << what;
  if (!record.empty()) std::cout << "; record: " << record.string();
  std::cout << std::endl;
}

void Trainer::train() {
  announce();
  for (std::int64_t s = 0; s < shape_.workload.steps; ++s) step(s);
  progress_.finish();
  evaluate();
  finish();
}

// On a GPU the first steps run as they are: libraries choose their kernels then, and the second one is
// checked. The third is captured, and replayed from then on: one launch instead of thousands.
StepResult Trainer::train_step(std::span<const Batch> batches, std::int64_t step) {
  if (profiles(step)) {
    profile_->begin_step();
    StepResult result = strategy_->train_step(batches);
    profile_->end_step();
    return result;
  }
  if (gpu_ == nullptr || !graph_ || step <= kCheckedStep) return strategy_->train_step(batches);
  if (!gpu_->captured()) gpu_->capture([&] { captured_ = strategy_->train_step(batches); });
  gpu_->replay();
  world_.comm().record().replayed(ended_on_current_stream());
  return captured_;
}

// NaN where a fault asks for it: this rank's gradients are scaled by it.
void Trainer::poison_if_asked(std::span<const Batch> batches, std::int64_t step) const {
  if (!fault_.nan_at(shape_.rank, step)) return;
  at::Tensor scale = batches[0].scale;
  scale.fill_(std::numeric_limits<float>::quiet_NaN());
}

void Trainer::step(std::int64_t step) {
  const Clock::time_point began = Clock::now();
  RecordingCommunicator& comm = world_.comm();
  comm.set_phase("train");
  comm.set_step(step);
  comm.record().reset_waited();
  world_.watchdog().step_begin(step);
  step_now_ = step;
  const std::span<const Batch> batches = loader_.train(step);
  scalars_.lr.fill_(learning_rate(shape_.workload.optim, step, shape_.workload.steps));
  fault_.at_step(shape_.rank, step);
  at::Tensor scale = batches[0].scale;  // of all micro-batches
  if (scalars_.loss_scale.defined()) scale.mul_(scalars_.loss_scale);
  poison_if_asked(batches, step);

  if (step == kCheckedStep) claims_.begin();
  if (gpu_ != nullptr && (traces(step) || profiles(step))) {
    gpu_began_ = gpu_origin();
    comm.record().set_gpu_origin(gpu_began_);
  }
  const StepResult result = train_step(batches, step);
  if (gpu_ != nullptr && traces(step)) gpu_ended_ = gpu_moment();
  if (step + 1 < shape_.workload.steps) loader_.prefetch(step + 1);  // while the GPU computes
  steps_.push_back(record_of(step, result, began));
  stop_or_skip(steps_.back());
  if (step == kCheckedStep) claims_.check(comm.recorded("train", step));
  comm.set_phase("check");
  strategy_->after_step(step);
  world_.watchdog().step_end();
  const StepRecord& done = steps_.back();
  if (speaks()) records_->append(done);
  progress_.step({done.step, done.loss, done.tokens, done.seconds, done.waited_seconds});
}

// Where a gradient is not finite the update has left everything as it was (global_norm_and_clip), on all
// ranks alike.
void Trainer::stop_or_skip(const StepRecord& step) {
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
    world_.comm().set_phase("check");
    throw_nonfinite(*strategy_, step.loss, step.step, world_.comm());
  }
  if (!speaks()) return;
  progress_.note(fmt::format("step {}: the gradient is not finite; its update is skipped", step.step) +
                 (scaled ? fmt::format(", the loss scale is {} now", scale) : ""));
}

RunFiles::Outcome Trainer::outcome() const {
  return {steps_, validation_loss_, seconds_of(Clock::now() - began_), profiled_, claims_.allocator()};
}

StepRecord Trainer::record_of(std::int64_t step, const StepResult& result, Clock::time_point began) {
  StepRecord record;
  const at::Tensor host_sums = result.sums.cpu();  // waits for the step
  const double* sums = host_sums.const_data_ptr<double>();
  record.skipped = sums[kNonFinite] != 0;
  record.step = step;
  record.loss = sums[kLossSum] / sums[kTokens];
  record.lr = scalars_.lr.item<float>();
  record.grad_norm = result.grad_norm.item<float>();
  record.tokens = shape_.workload.batch.global * shape_.workload.batch.sequence;
  world_.comm().record().read_gpu_times();
  record.waited_seconds = std::chrono::duration<double>(world_.comm().record().waited()).count();
  const Clock::time_point now = Clock::now();
  record.seconds = seconds_of(now - began);
  if (traces(step)) trace(step, began, now);
  return record;
}

void Trainer::trace(std::int64_t step, Clock::time_point began, Clock::time_point ended) {
  Trace::Step traced{step, began, ended, {}};
  if (gpu_ != nullptr) {
    const auto gpu_ended = gpu_began_.on_host(*gpu_ended_);
    if (gpu_ended) traced.on_gpu = std::pair(gpu_began_.at, std::min(*gpu_ended, ended));
  }
  records_->trace_step(traced);
}

void Trainer::evaluate() {
  RecordingCommunicator& comm = world_.comm();
  comm.set_phase("eval");
  world_.watchdog().step_begin(shape_.workload.steps);
  strategy_->settle();
  const std::span<const Batch> batches = loader_.validation();
  if (!batches.empty()) validation_loss_ = strategy_->evaluate(batches);
  if (job_.line.sample > 0) sample();
  world_.watchdog().step_end();
}

void Trainer::sample() {
  const std::unique_ptr<Tokenizer> tokenizer = make_tokenizer(shape_.workload.data.tokenizer);
  const SampleSource source{shape_, strategy_->layout(), data_.validation(), tokenizer->vocab()};
  const Sample made = make_sample(*strategy_, source, ledger_, world_.comm(), job_.line.sample);
  if (speaks()) std::cout << "\n" << format_sample(made, *tokenizer, shape_.workload.seed);
}

// What a step of these operations could take at best is measured now: nothing else runs any more.
void Trainer::finish_profile() {
  RecordingCommunicator& comm = world_.comm();
  world_.watchdog().step_begin(shape_.workload.steps);
  Profile& profile = profiled_.emplace(profile_->finish(to_aten(shape_.workload.precision.dtype)));
  if (profile.steps > 0 && shape_.world > WorldSize{1}) {
    for (const StepRecord& step : steps_) {
      if (profiles(step.step))
        profile.waited_milliseconds += step.waited_seconds * 1e3 / static_cast<double>(profile.steps);
    }
    profile.communication = communication_rows(comm.record().spans(), kWarmupSteps);
    measure_alone(comm, claims_.operations(), profile);
  }
  world_.watchdog().step_end();
}

void Trainer::finish() {
  RecordingCommunicator& comm = world_.comm();
  comm.set_phase("check");
  if (comm.dropped_tickets() > 0) {
    throw ClaimError(fmt::format("rank {}: {} operations were never waited for", to_int(shape_.rank),
                                 comm.dropped_tickets()));
  }
  records_->gather(claims_.memory(), claims_.operations(), claims_.measured(), comm);
  // After the last operation that all ranks share: rank 0 may write for long, and nobody may wait for it in
  // one.
  if (!job_.line.save.empty()) save_weights(*strategy_, strategy_->layout(), comm, job_.line.save);
  if (profile_) finish_profile();
  const Path written = records_->finish(outcome());
  if (speaks()) say_the_end(written);
}

void Trainer::say_the_end(const Path& record) const {
  std::cout << fmt::format("\nloss {:.4f} -> {:.4f}", steps_.front().loss, steps_.back().loss)
            << (validation_loss_ ? fmt::format(", validation {:.4f}", *validation_loss_) : std::string())
            << " nats a token, " << human_seconds(seconds_of(Clock::now() - began_)) << "\n";
  if (const std::int64_t skipped = skipped_updates(steps_); skipped > 0)
    std::cout << skipped << " updates skipped: their gradient was not finite\n";
  std::cout << "\n" << claims_.report();
  if (profiled_) std::cout << format_profile(*profiled_);
  if (job_.other) std::cout << "\n" << format_comparison(records_->record(), *job_.other);
  if (!records_->trace().empty()) {
    std::cout << "trace: " << records_->trace().string() << " (the first " << kTracedSteps << " steps"
              << (gpu_ != nullptr ? "; waits and compute at the GPU's times" : "") << ")\n";
  }
  std::cout << "record: " << record.string() << std::endl;
}

// Before ranks meet, so that none of those that share the GPU holds anything yet. NCCL and libraries take some more:
// what passes may still be too much, and then ends where it is allocated.
void refuse_what_gpu_lacks(const TrainJob& job, const Gpu& gpu, int index) {
  if (job.line.memory_cap) return;
  LimitedRun run = limited_run(job.lesson, shape_of_run(job), gpu.free());
  run.place = fmt::format("GPU {}", index);
  if (job.line.share_gpu) run.sharing = ceil_div(to_int(job.launch.local_world), visible_gpus());
  refuse_what_does_not_fit(run);
}

}  // namespace

int train(const TrainJob& job) {
  const c10::InferenceMode inference;
  std::optional<Gpu> gpu;
  WorldOptions options{.watchdog_seconds = job.line.watchdog_seconds,
                       .trace_steps = job.line.profile ? job.config.workload.steps
                                      : job.line.trace ? kTracedSteps
                                                       : 0,
                       .gpu = {},
                       .share_gpu = job.line.share_gpu};
  if (job.device == DeviceKind::cuda) {
    options.gpu = gpu_of(job.launch, job.line.share_gpu);  // before anything else of CUDA
    set_nccl_environment();
    gpu.emplace(*options.gpu);
    gpu->note_beside_allocator("context, and what other processes hold");
    refuse_what_gpu_lacks(job, *gpu, *options.gpu);
  }
  AllocatorWitness witness;
  Ledger ledger(gpu ? gpu->device() : at::Device(at::kCPU), job.line.memory_cap.value_or(Bytes(0)));
  World world(job.launch, ledger, options);
  if (gpu) gpu->note_beside_allocator("communicators, connected");
  try {
    Trainer(job, world, ledger, witness, gpu ? &*gpu : nullptr).run();
  } catch (...) {
    const Failure failure = current_failure(job.launch.rank);
    world.fail(failure.code, failure.text);
  }
  return 0;
}

}  // namespace sc::detail
