// The directory of a run: steps.jsonl while it goes on, record.json and trace.json at its end.
#pragma once

#include <chrono>
#include <optional>

#include "common/comm/recording_communicator.h"
#include "common/run/record.h"
#include "common/run/report.h"
#include "common/run/trace.h"
#include "common/run/trainer.h"

namespace sc::detail {

/// Steps that --trace draws: the first ones.
inline constexpr std::int64_t kTracedSteps = 8;

/// Rank 0 writes; the others send it what they know. On other ranks only finish() and trace_step() do
/// anything.
class RunFiles {
 public:
  /// Rank 0 makes the directory: --out, or runs/<lesson>/<time> below the current directory.  Errors:
  /// InputError (exit 73).
  RunFiles(FileOps& files, const TrainJob& job, const RunShape& shape);

  void append(const StepRecord& step) { log_->append(step); }
  void trace_step(std::int64_t step, Trace::Clock::time_point begin, Trace::Clock::time_point end);
  /// Collective. Fills in everything but steps, validation loss and seconds, writes, and returns the path of
  /// the record (rank 0). measured: null if the run was too short to be checked.
  Path finish(RunRecord record, const MemoryPlan& memory, const CommPlan& comm_plan, const Measured* measured,
              RecordingCommunicator& comm);

 private:
  FileOps& files_;
  const TrainJob& job_;
  const RunShape& shape_;
  std::string started_;
  Path dir_;
  std::optional<StepLog> log_;
  std::vector<Trace::Step> traced_;
};

}  // namespace sc::detail
