// What a run leaves behind: runs/<lesson>/<time>/record.json and steps.jsonl. Figures, READMEs and
// comparisons read nothing else. No torch.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/base/types.h"
#include "common/memory/purpose.h"
#include "common/records/mfu.h"
#include "common/records/profile.h"
#include "common/records/report.h"
#include "common/storage/file_ops.h"
#include "common/watch/comm_op.h"
#include "common/watch/timetable.h"

namespace sc {

/// One optimizer step: a line of steps.jsonl, and an element of each column in record.json. A number that is
/// not finite is written as null and read as NaN; the validation loss, which may be missing, as "nan", "inf"
/// or "-inf".
struct StepRecord {
  std::int64_t step = 0;  // 0-based
  double loss = 0;        // nats per token, mean over the global batch
  double lr = 0;
  double grad_norm = 0;     // before clipping
  std::int64_t tokens = 0;  // summed over ranks
  double seconds = 0;       // measured by the writing rank
  // The time inside waits for communication: of the host, or on GPUs of the compute stream, by events
  // (watch/gpu_moment.h).
  double waited_seconds = 0;
  bool skipped = false;                        // loss or gradient was not finite, so there was no update
  std::optional<double> validation_loss = {};  // after the step, if --eval-every asked for it
  [[nodiscard]] double tokens_per_second() const;
  [[nodiscard]] double wait_share() const;
};

/// The fields of a step by their JSON keys, in order, for lines and columns, writing and reading. The
/// validation loss is not among them, because each of these four treats a missing one differently. The two
/// functions are computed from the fields, written in lines only, and never read.
inline constexpr std::tuple kStepFields = {std::pair("step", &StepRecord::step),
                                           std::pair("loss", &StepRecord::loss),
                                           std::pair("lr", &StepRecord::lr),
                                           std::pair("grad_norm", &StepRecord::grad_norm),
                                           std::pair("tokens", &StepRecord::tokens),
                                           std::pair("seconds", &StepRecord::seconds),
                                           std::pair("tokens_per_second", &StepRecord::tokens_per_second),
                                           std::pair("waited_seconds", &StepRecord::waited_seconds),
                                           std::pair("wait_share", &StepRecord::wait_share),
                                           std::pair("skipped", &StepRecord::skipped)};

template <class Visit>
void for_each_step_field(const Visit& visit) {
  std::apply([&](const auto&... of) { (visit(of.first, of.second), ...); }, kStepFields);
}
/// Calls visit(key, member) for each field that is stored in columns and read: all but the two functions.
template <class Visit>
void for_each_stored_step_field(const Visit& visit) {
  for_each_step_field([&](const char* key, auto field) {
    if constexpr (std::is_member_object_pointer_v<decltype(field)>) visit(key, field);
  });
}

/// How many of the steps skipped their update.
std::int64_t skipped_updates(const std::vector<StepRecord>& steps);

/// One rank: what it is, what was predicted for it and what was measured. `measured` is empty if the run
/// ended before the check.
struct RankRecord {
  Rank rank{0};
  std::string host, cpu;
  int cores = 0;  // usable by the rank
  Bytes memory;   // of the host
  RankBytes predicted_bytes;
  CommPlan predicted_operations;  // of one training step
  std::optional<RankBytes> measured_bytes;
  std::optional<CommPlan> measured_operations;
  bool operator==(const RankRecord&) const = default;
  /// Whether bytes and operations were measured, and every number equals its prediction.
  [[nodiscard]] bool as_predicted() const;
};

struct SaveRecord {
  std::int64_t step = 0;  // steps done in it
  double blocked = 0;     // seconds that the run waited for it
  double seconds = 0;     // seconds from its beginning until it was durable
};

/// A file that a run was given, and how to recognise it.
struct FileRecord {
  std::string file;  // as named by the user
  std::int64_t bytes = 0;
  std::string sum;  // of its content, 16 hexadecimal digits
};

/// The trained model's result on --test.
struct TestRecord {
  FileRecord text;  // its tokens
  std::int64_t rows = 0;
  double loss = 0;  // nats per token
};

struct ResumedFrom {
  std::string path, lesson;
  std::int64_t step = 0, world = 0;
  // The position in the order of rows where the run begins, and the tokens trained on before.
  std::int64_t rows = 0, tokens = 0;
};

struct RunRecord {
  std::string lesson;                           // the lesson's folder
  std::string commit = "unknown";               // of the source tree, with "-dirty" if changed
  std::string command;                          // as typed
  std::string started;                          // UTC, "2025-01-31T12:00:00Z"
  std::map<std::string, std::string> workload;  // the resolved value of every key
  std::string workload_hash;                    // records compare only if these are equal
  std::map<std::string, std::string> strategy;  // the lesson's own keys
  std::string device = "cpu", comm = "local";
  int world = 1;
  int threads = 1;                              // intra-op threads per rank
  std::map<std::string, std::string> versions;  // of LibTorch, MPI, compiler, ...
  std::optional<ModelFlops> flops = {};         // on GPUs
  // Down to `allocator`, and in `saves` and `test`, what is written is not read back. `profile` and
  // `allocator` are rank 0's, on GPUs.
  std::optional<Profile> profile = {};  // --profile
  std::optional<AllocatorCheck> allocator = {};
  std::optional<GraphNodes> graph = {};
  std::optional<Timetable> timetable = {};  // of rank 0
  // The strategy's counters by their names.
  std::vector<std::pair<std::string, std::int64_t>> counts = {};
  std::optional<ResumedFrom> resumed_from = {};  // empty if the run started at step 0
  std::optional<FileRecord> init = {};           // --init; empty: none, or an older record without it
  std::optional<FileRecord> validation = {};     // the tokens of --validation; empty likewise
  std::vector<SaveRecord> saves = {};
  std::vector<RankRecord> ranks = {};
  std::vector<StepRecord> steps = {};
  std::optional<double> validation_loss = {};
  std::optional<TestRecord> test = {};
  double seconds = 0;                 // from start to end
  std::optional<int> exit_code = {};  // empty: still running, or killed
  std::string message = {};           // of an error
  [[nodiscard]] bool as_predicted() const;
};

struct StepTiming {
  std::int64_t steps = 0;               // number of timed steps
  double median = 0, p10 = 0, p90 = 0;  // seconds per step
  double tokens_per_second = 0;         // tokens of the median step over its time
  double wait_share = 0;                // waits of all timed steps over their time
};
inline constexpr std::int64_t kWarmupSteps = 5;
inline constexpr std::int64_t kTimedSteps = 20;  // with fewer steps there is no measurement

/// The timing of the steps after the warm-up; nullopt if they are fewer than kTimedSteps.
std::optional<StepTiming> timing_of(const std::vector<StepRecord>& steps);

/// Writes dir/record.json, completely or not at all; an existing one is replaced.
///   Errors  InputError (exit 73).
void write_record(FileOps& ops, const Path& dir, const RunRecord& record);
std::string line_of(const RunRecord& record);
/// Does write_record() if the directory has no record yet; otherwise returns false and writes nothing.
bool write_new_record(FileOps& ops, const Path& dir, const RunRecord& record);

/// Reads a record.
///   Errors  InputError (exit 65) with the path and the key (or line and column) that is wrong.
RunRecord read_record(FileOps& ops, const Path& path);

/// Turns a rank's part of record.json into text, sent to the rank that writes the record, and back.
///   Errors  InputError (exit 65): a text that text_of() with this world did not make.
std::string text_of(const RankRecord& rank, int world);
RankRecord rank_of_text(const std::string& text, int world);

/// Writes dir/steps.jsonl, one line per step during the run, so that a killed run leaves what it had.
class StepLog {
 public:
  /// Creates steps.jsonl; an existing one is replaced.
  ///   Errors  those of atomic_write_file; exit 73 for append().
  StepLog(FileOps& ops, const Path& dir);
  void append(const StepRecord& step);

 private:
  std::unique_ptr<File> file_;
};

/// Reads all complete lines of steps.jsonl; a last line cut short by a kill is left out.
///   Errors  InputError (exit 65) with the line.
std::vector<StepRecord> read_steps(FileOps& ops, const Path& path);

/// Creates and returns root/<lesson>/<time in UTC, 2025-01-31T12-00-00>, with "-2", "-3", ... if that exists.
Path new_run_dir(FileOps& ops, const Path& root, const std::string& lesson,
                 std::chrono::system_clock::time_point now);

/// A time in UTC as text: "2025-01-31T12:00:00Z".
std::string utc_text(std::chrono::system_clock::time_point time);

}  // namespace sc
