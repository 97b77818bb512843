// What is noted of every step while a run trains: nothing in here changes what is computed.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/records/progress.h"
#include "common/records/record.h"
#include "common/run/claims.h"
#include "common/run/run_files.h"
#include "common/run/train_job.h"
#include "common/run/world.h"
#include "common/strategy/strategy.h"
#include "common/watch/gpu_moment.h"

namespace sc::detail {

/// What an observer looks at and writes to. All outlive it.
struct Observed {
  World& world;
  Claims& claims;
  RunFiles& files;
  Timeline& timeline;
  std::chrono::steady_clock::time_point run_began;
};

/// The phase of operations, the watchdog, the clock, the claims of the checked step, the trace, the records
/// and the line on the screen. While it lives the world's last acts are its own.
class Observer {
 public:
  using Clock = std::chrono::steady_clock;

  Observer(const TrainJob& job, const Observed& observed);
  ~Observer();

  // Once a step, in this order:
  /// The step's clock runs, and the watchdog's.
  void begin(std::int64_t step);
  /// Right before and right after the strategy's work is enqueued: what a step may hold and send counts from
  /// here on; the GPU's times of a step that is drawn.
  void computing();
  void computed();
  /// Waits for the step, and returns what it came to; of a result that comes late, what that step came to.
  /// Holds until the next call. Null: no result yet.
  const StepRecord* record(const StepResult& result);
  /// The claims, of the checked step. What is communicated from here on is no training.
  ///   Errors  ClaimError.
  void check();
  /// Steps.jsonl and the line on the screen.
  void end();

  /// A checkpoint of so many steps is durable, which this run has made.
  void saved(std::int64_t done) { saved_ = done; }
  /// The validation loss after the newest step.
  void validated(double loss);
  /// A line of its own on the screen.
  void note(const std::string& text);
  /// After the last step, or when there will be no more: the line on the screen ends. Idempotent.
  void finish() { progress_.finish(); }
  [[nodiscard]] const std::vector<StepRecord>& steps() const { return steps_; }

 private:
  void failed(int exit_code, const std::string& text);
  void interrupted(int signal);
  void draw(Clock::time_point ended);
  [[nodiscard]] bool on_gpu() const { return job_.shape.device == DeviceKind::cuda; }

  const TrainJob& job_;
  const Observed seen_;
  RecordingCommunicator& comm_;
  Progress progress_;
  std::vector<StepRecord> steps_;
  StepRecord earlier_;  // of a step before the checkpoint that the run went on from; not in steps_
  std::map<std::int64_t, StepRecord> times_;  // of steps whose results have not come: their times alone
  std::size_t said_ = 0;                      // of them, those on disk and on the screen
  std::atomic<std::int64_t> step_ = 0;        // read by the watchdog's thread, as saved_
  std::atomic<std::int64_t> saved_ = 0;       // steps of the last checkpoint of this run; 0: there is none
  Clock::time_point began_;
  GpuOrigin gpu_began_;  // of a step that is drawn
  GpuMomentPtr gpu_ended_;
};

}  // namespace sc::detail
