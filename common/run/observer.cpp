#include "common/run/observer.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <iostream>

#include "common/base/finite.h"
#include "common/input/printable.h"
#include "common/optim/grad_norm.h"
#include "common/optim/lr_schedule.h"
#include "common/run/resume.h"
#include "common/storage/checkpoint/generations.h"

namespace sc::detail {
namespace {

// The flag that makes this run's command resume from its checkpoint of `saved` steps. Empty if it has none
// (0), since the command then resumes as before.
std::string change_to_go_on(const TrainJob& job, std::int64_t saved) {
  const std::string& resumed = job.line.checkpoints.resume;
  if (saved == 0 || resumed == "latest") return "";
  const Path newest = checkpoints_dir(job) / checkpoint::generation_name(saved);
  return fmt::format(" with --resume {}{}", newest.string(),
                     !resumed.empty()        ? " instead of --resume " + resumed
                     : job.line.init.empty() ? ""
                                             : " and without --init");
}

}  // namespace

Observer::Observer(const TrainJob& job, const Observed& observed)
    : job_(job),
      seen_(observed),
      comm_(observed.world.comm()),
      progress_(std::cout, [] { return seconds_since(Clock::time_point{}); },
                {.total_steps = job.shape.workload.steps,
                 .quiet = !job.speaks() || job.line.brief,
                 .terminal = on_terminal(),
                 .bar = job.line.verbose ? std::nullopt : std::optional(look_here()),
                 .flops = observed.files.record().flops}) {
  seen_.world.set_last_acts(
      {.failed = [this](int exit_code, const std::string& text) { failed(exit_code, text); },
       .interrupted = [this](int signal) { interrupted(signal); },
       .saves = job.line.checkpoints.every > 0});
}

Observer::~Observer() { seen_.world.set_last_acts({}); }

// Writes a failure to where the last line of a successful run goes.
void Observer::failed(int exit_code, const std::string& text) {
  const Path record = seen_.files.fail(exit_code, text, seen_.run_began);
  if (!record.empty()) std::cout << fresh_line() << "record: " << printable(record.string()) << std::endl;
}

void Observer::interrupted(int signal) {
  if (!job_.speaks()) return;
  std::string what = fmt::format("interrupted at step {}", step_.load());
  const std::int64_t saved = saved_;
  if (const std::int64_t done = saved > 0 ? saved : job_.first_step; done > 0)
    what +=
        fmt::format("; {} steps are saved: the same command{} goes on", done, change_to_go_on(job_, saved));
  const Path record = seen_.files.fail(128 + signal, what, seen_.run_began);
  std::cout << fresh_line() << what;
  if (!record.empty()) std::cout << "; record: " << printable(record.string());
  std::cout << std::endl;
}

void Observer::begin(std::int64_t step) {
  began_ = Clock::now();
  comm_.set_phase("train");
  comm_.set_step(step);
  comm_.record().reset_waited();
  seen_.world.watchdog().step_begin(step);
  step_ = step;
}

void Observer::computing() {
  if (step_ == job_.checked_step()) seen_.claims.begin();
  const bool timed = job_.traces(step_) || job_.profiles(step_) || job_.marks(step_);
  // A GPU's timestamps cost launches, so a step has them only if its times are needed.
  seen_.world.time_operations(timed);
  if (on_gpu() && !timed) return;
  if (on_gpu()) {
    gpu_began_ = gpu_origin();
    comm_.record().set_gpu_origin(gpu_began_);
  }
  const bool replays = job_.replays(step_);  // marks of a replay have other times
  // A graph's marks are recorded when it is captured; the second marked step replays them.
  if (replays && job_.marks(step_ - 1) && step_ - 1 > job_.checked_step()) return;
  seen_.timeline.begin_step(
      step_, {.drawn = job_.traces(step_) && !replays, .marked = job_.marks(step_)},
      on_gpu() ? std::optional<Timeline::GpuClock>({gpu_began_, gpu_moment}) : std::nullopt);
}

void Observer::computed() {
  seen_.timeline.end_step();
  if (on_gpu() && job_.traces(step_)) gpu_ended_ = gpu_moment();
}

// [anchor: waits-for-the-step]
const StepRecord* Observer::record(const StepResult& result) {
  // Copying the sums to the host waits for the step.
  const at::Tensor host_sums = result.sums.defined() ? result.sums.cpu() : at::Tensor();
  const Clock::time_point now = Clock::now();
  comm_.record().read_gpu_times();
  const std::chrono::duration<double> took = now - began_, waited = comm_.record().waited();
  // A step's duration is known now, even if its result comes later.
  const StepRecord times{.seconds = took.count(), .waited_seconds = waited.count()};
  if (times_.emplace(step_, times).second) draw(now);
  if (!host_sums.defined()) return nullptr;
  const double* sums = host_sums.const_data_ptr<double>();
  const Workload& workload = job_.shape.workload;
  const std::int64_t step = result.of_step.value_or(step_);
  StepRecord record{
      .step = step,
      .loss = without_sign_of_nan(sums[kLossSum] / sums[kTokens]),
      .lr = static_cast<float>(result.lr.value_or(learning_rate(workload.optim, step, workload.steps))),
      .grad_norm = result.grad_norm.item<float>(),
      .tokens = workload.batch.global * workload.batch.sequence,
      .skipped = sums[kNonFinite] != 0};
  const auto own = times_.extract(step);
  // The result is of a step before the checkpoint from which this run resumed; the run that saved it may have
  // ended without it.
  if (own.empty()) return &(earlier_ = record);
  record.seconds = own.mapped().seconds, record.waited_seconds = own.mapped().waited_seconds;
  return &steps_.emplace_back(record);
}

// Passes the step's times to the page and the trace, if they show it.
void Observer::draw(Clock::time_point ended) {
  if (job_.marks(step_)) {
    if (job_.replays(step_)) seen_.timeline.settle(step_);
    seen_.files.mark_step({step_, began_, ended, {}});
  }
  if (!job_.traces(step_)) return;
  Trace::Step traced{step_, began_, ended, {}};
  if (on_gpu()) {
    const auto gpu_ended = gpu_began_.on_host(*gpu_ended_);
    if (gpu_ended) traced.on_gpu = std::pair(gpu_began_.at, std::min(*gpu_ended, ended));
  }
  seen_.files.trace_step(traced);
}

void Observer::check() {
  if (step_ == job_.checked_step()) seen_.claims.check(comm_.recorded("train", step_), step_);
  comm_.set_phase("check");
}

void Observer::end() {
  seen_.world.watchdog().step_end();
  for (; said_ < steps_.size(); ++said_) {
    const StepRecord& done = steps_[said_];
    if (job_.speaks()) seen_.files.append(done);
    progress_.step(done);
  }
}

void Observer::validated(double loss) {
  if (!steps_.empty()) steps_.back().validation_loss = loss;
  note(fmt::format("after {} steps: validation {:.4f}", step_ + 1, loss));
}

void Observer::note(const std::string& text) {
  if (job_.speaks()) progress_.note(text);
}

}  // namespace sc::detail
