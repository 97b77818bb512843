// Observes every step while a run trains; nothing here changes what is computed.
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

/// What an observer reads and writes; all of it must outlive the observer.
struct Observed {
  World& world;
  Claims& claims;
  RunFiles& files;
  Timeline& timeline;
  std::chrono::steady_clock::time_point run_began;
};

/// Sets the phase of operations, and drives the watchdog, the clock, the claims of the checked step, the
/// trace, the records and the line on the screen. While it exists it provides the world's last acts.
class Observer {
 public:
  using Clock = std::chrono::steady_clock;

  Observer(const TrainJob& job, const Observed& observed);
  ~Observer();

  // The functions down to end() are called once per step, in this order.

  void begin(std::int64_t step);
  /// Called before and after the strategy's work is enqueued: computing() starts the claims of the checked
  /// step, and both mark the GPU's times of a step that is drawn.
  void computing();
  void computed();
  /// Waits for the step and returns its record, or, if a late result arrives, the record of the step it
  /// belongs to. Valid until the next call. Null: no result yet.
  const StepRecord* record(const StepResult& result);
  /// Checks the claims after the checked step. Operations from here on do not count as training.
  ///   Errors  ClaimError.
  void check();
  /// Writes the step to steps.jsonl, and redraws the line on the screen.
  void end();

  /// Called when a checkpoint after `done` steps is durable.
  void saved(std::int64_t done) { saved_ = done; }
  /// Takes the validation loss after the newest step.
  void validated(double loss);
  void note(const std::string& text);
  /// Ends the line on the screen, after the last step or when there will be no more. Idempotent.
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
  StepRecord earlier_;  // of a step before the checkpoint that the run resumed from; not in steps_
  std::map<std::int64_t, StepRecord> times_;  // of steps whose results have not arrived: times only
  std::size_t said_ = 0;                      // steps already written and shown
  std::atomic<std::int64_t> step_ = 0;        // read by the watchdog's thread, like saved_
  std::atomic<std::int64_t> saved_ = 0;       // steps of this run's last checkpoint; 0: there is none
  Clock::time_point began_;
  GpuOrigin gpu_began_;  // of a step that is drawn
  GpuMomentPtr gpu_ended_;
};

}  // namespace sc::detail
