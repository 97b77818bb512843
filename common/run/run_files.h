// The directory of a run: steps.jsonl while it goes on, record.json and trace.json at its end.
#pragma once

#include <chrono>
#include <optional>

#include "common/base/check.h"
#include "common/comm/recording_communicator.h"
#include "common/records/page.h"
#include "common/records/record.h"
#include "common/records/trace.h"
#include "common/run/claims.h"
#include "common/run/train_job.h"

namespace sc::detail {

/// What a record keeps of a configuration.
std::map<std::string, std::string> values_of(const FieldSet& fields);
std::map<std::string, std::string> values_of(Workload workload);

/// Where what is made of a text is kept: STAGECRAFT_CACHE; or .cache in the repository; or, where this user
/// may not write there, the user's own cache (XDG_CACHE_HOME or HOME/.cache, stagecraft), if that can be
/// written.
Path cache_dir();

/// `named` as it was given, `path` where its content lies: all of it is read.
FileRecord record_of_file(const std::string& named, const Path& path);

/// Rank 0 writes; the others send it what they know. record.json is there from the start, without an exit
/// code, so that a killed run leaves one too; fail() writes it from any rank.
class RunFiles {
 public:
  /// Collective. Rank 0 makes the directory: --out, or runs/<lesson>/<time> below the current directory.
  ///   begun   rank 0: what is known at the start
  ///   Errors  InputError: exit 73, or 64 if there is a record in --out already.
  RunFiles(FileOps& files, const TrainJob& job, RunRecord begun, Communicator& comm);

  /// Rank 0: what was known at the start, and after finish() what was written.
  [[nodiscard]] const RunRecord& record() const { return record_; }
  /// From now on: not in the record that is there from the start.
  void resumed_from(const ResumedFrom& checkpoint) { record_.resumed_from = checkpoint; }
  void append(const StepRecord& step) { log_->append(step); }
  void trace_step(const Trace::Step& step) { traced_.push_back(step); }
  void mark_step(const Trace::Step& step) { marked_.push_back(step); }
  /// Collective: rank 0 learns what the others predicted and measured, and writes the trace.
  ///   layout  the strategy's
  void gather(const Claims& claims, Timeline& timeline, const ParamLayout& layout,
              RecordingCommunicator& comm);
  /// Rank 0, after gather(): where the trace lies; empty without one.
  [[nodiscard]] Path trace() const { return trace_; }
  /// Rank 0, after finish(): where the page lies; empty without one.
  [[nodiscard]] Path page() const { return page_; }
  /// Not collective. Writes the whole record and returns its path (rank 0).
  ///   ended  what is known at the end, but for the ranks
  Path finish(RunRecord ended);
  /// Rank 0, after finish(): the page, where one is wanted. Where it cannot be written a warning says so.
  void write_page(const ParamLayout& layout) noexcept;
  /// Not collective, from any thread of any rank: the record with exit code, message, the seconds from the
  /// run's start, and the steps that are in steps.jsonl. Returns its path, or nothing if it cannot be
  /// written. Never throws: the failure that is being reported matters more than one of writing about it.
  Path fail(int exit_code, const std::string& message, std::chrono::steady_clock::time_point began) noexcept;

 private:
  [[nodiscard]] RankMarks marks_of(Timeline& timeline, const std::vector<OpSpan>& spans) const;

  FileOps& files_;
  const TrainJob& job_;
  RunRecord record_;
  Path dir_, trace_, page_;
  std::optional<StepLog> log_;
  std::vector<Trace::Step> traced_, marked_;
  std::vector<std::string> page_ranks_;  // rank 0: parts of the page
};

}  // namespace sc::detail
