// The directory of a run: steps.jsonl during the run, record.json and trace.json at its end.
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

/// The values of a configuration by key, as a record stores them.
std::map<std::string, std::string> values_of(const FieldSet& fields);
std::map<std::string, std::string> values_of(Workload workload);

/// Where tokenized texts are cached: STAGECRAFT_CACHE; or .cache in the repository; or, if this user cannot
/// write there, the user's own cache (XDG_CACHE_HOME or HOME/.cache, stagecraft), if that can be written.
Path cache_dir();

/// A file's name as given (`named`) and the checksum of its content, for which all of `path` is read.
FileRecord record_of_file(const std::string& named, const Path& path);

/// The files of a run. Rank 0 writes; the others send it what they know. record.json exists from the start,
/// without an exit code, so that a killed run leaves one too; fail() writes it from any rank.
class RunFiles {
 public:
  /// Makes the directory on rank 0: --out, or runs/<lesson>/<time> below the current directory. Collective.
  ///   begun   rank 0: what is known at the start
  ///   Errors  InputError: exit 73, or 64 if --out already contains a record.
  RunFiles(FileOps& files, const TrainJob& job, RunRecord begun, Communicator& comm);

  /// On rank 0, what was known at the start; after finish(), what was written.
  [[nodiscard]] const RunRecord& record() const { return record_; }
  /// Adds the checkpoint that the run resumed from; the record written at the start does not have it.
  void resumed_from(const ResumedFrom& checkpoint) { record_.resumed_from = checkpoint; }
  void append(const StepRecord& step) { log_->append(step); }
  void trace_step(const Trace::Step& step) { traced_.push_back(step); }
  void mark_step(const Trace::Step& step) { marked_.push_back(step); }
  /// Collects predictions and measurements of all ranks on rank 0, and writes the trace. `layout` is the
  /// strategy's. Collective.
  void gather(const Claims& claims, Timeline& timeline, const ParamLayout& layout,
              RecordingCommunicator& comm);
  /// On rank 0, after gather(): the path of the trace, empty without one.
  [[nodiscard]] Path trace() const { return trace_; }
  /// On rank 0, after finish(): the path of the page, empty without one.
  [[nodiscard]] Path page() const { return page_; }
  /// Writes the whole record on rank 0 and returns its path. Not collective.
  ///   ended  what is known at the end, except about the ranks
  Path finish(RunRecord ended);
  /// On rank 0, after finish(): writes the page, if one is wanted; warns if that fails.
  void write_page(const ParamLayout& layout) noexcept;
  /// Writes the record of a failed run: exit code, message, seconds from the run's start, and the steps in
  /// steps.jsonl. Not collective; callable from any thread of any rank. Returns its path, or nothing if it
  /// cannot be written. Never throws, since the failure being reported matters more.
  Path fail(int exit_code, const std::string& message, std::chrono::steady_clock::time_point began) noexcept;

 private:
  [[nodiscard]] RankMarks marks_of(Timeline& timeline, const std::vector<OpSpan>& spans) const;

  FileOps& files_;
  const TrainJob& job_;
  RunRecord record_;
  Path dir_, trace_, page_;
  std::optional<StepLog> log_;
  std::vector<Trace::Step> traced_, marked_;
  std::vector<std::string> page_ranks_;  // on rank 0: the ranks' parts of the page
};

}  // namespace sc::detail
