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

/// One optimizer step: a line of steps.jsonl, and in record.json an element of each column. What is not
/// finite is written as null and read as NaN; a validation loss, which may be missing, as "nan", "inf" or
/// "-inf".
struct StepRecord {
  std::int64_t step = 0;  // 0-based
  double loss = 0;        // nats a token, mean over the global batch
  double lr = 0;
  double grad_norm = 0;       // before clipping
  std::int64_t tokens = 0;    // of all ranks
  double seconds = 0;         // of the writing rank
  double waited_seconds = 0;  // the part of it inside waits for communication: of the host, on GPUs of the
                              // compute stream, by events (comm/gpu_moment.h)
  bool skipped = false;       // loss or gradient was not finite: no update
  std::optional<double> validation_loss = {};  // after it, where --eval-every asked
  [[nodiscard]] double tokens_per_second() const;
  [[nodiscard]] double wait_share() const;
};

/// The fields of a step by their keys, in the order of the JSON: one table for lines and columns, written and
/// read. The validation loss comes behind them: each of the four does something else where there is none. The
/// two functions follow from the fields: they are written in lines alone, and never read.
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

/// Calls visit(key, member) for each of them.
template <class Visit>
void for_each_step_field(const Visit& visit) {
  std::apply([&](const auto&... of) { (visit(of.first, of.second), ...); }, kStepFields);
}
/// The same without the functions: what has a column, and is read.
template <class Visit>
void for_each_stored_step_field(const Visit& visit) {
  for_each_step_field([&](const char* key, auto field) {
    if constexpr (std::is_member_object_pointer_v<decltype(field)>) visit(key, field);
  });
}

/// How many of the steps left their update out.
std::int64_t skipped_updates(const std::vector<StepRecord>& steps);

/// What one rank is, what was predicted for it and what was found. `measured` is empty if the run ended
/// before the check.
struct RankRecord {
  Rank rank{0};
  std::string host, cpu;
  int cores = 0;  // that the rank may use
  Bytes memory;   // of the host
  RankBytes predicted_bytes;
  CommPlan predicted_operations;  // of one training step
  std::optional<RankBytes> measured_bytes;
  std::optional<CommPlan> measured_operations;
  bool operator==(const RankRecord&) const = default;
  /// Both were measured, and every number is the predicted one.
  [[nodiscard]] bool as_predicted() const;
};

/// A checkpoint that a run wrote.
struct SaveRecord {
  std::int64_t step = 0;  // steps that are done in it
  double blocked = 0;     // seconds that the run waited for it
  double seconds = 0;     // from its beginning until it was durable
};

/// A file that a run was given, and what tells it from another of that name.
struct FileRecord {
  std::string file;  // as named
  std::int64_t bytes = 0;
  std::string sum;  // of its content, 16 hexadecimal digits
};

/// The trained model on --test.
struct TestRecord {
  FileRecord text;  // its tokens
  std::int64_t rows = 0;
  double loss = 0;  // nats a token
};

/// The checkpoint that a run went on from.
struct ResumedFrom {
  std::string path, lesson;
  std::int64_t step = 0, world = 0;
  std::int64_t rows = 0, tokens = 0;  // where the run begins in the order of rows; trained on before it
};

struct RunRecord {
  std::string lesson;                           // the folder's name
  std::string commit = "unknown";               // of the source tree, "-dirty" if changed
  std::string command;                          // as typed
  std::string started;                          // UTC, "2025-01-31T12:00:00Z"
  std::map<std::string, std::string> workload;  // every key's resolved value
  std::string workload_hash;                    // records compare only when these are equal
  std::map<std::string, std::string> strategy;  // the lesson's own keys
  std::string device = "cpu", comm = "local";
  int world = 1;
  int threads = 1;                              // intra-op, a rank
  std::map<std::string, std::string> versions;  // LibTorch, MPI, compiler, ...
  std::optional<ModelFlops> flops = {};         // on GPUs
  // Of rank 0, on GPUs; written, not read back.
  std::optional<Profile> profile = {};  // --profile
  std::optional<AllocatorCheck> allocator = {};
  std::optional<GraphNodes> graph = {};
  std::optional<Timetable> timetable = {};  // written, not read back
  std::vector<std::pair<std::string, std::int64_t>> counts =
      {};                                        // what the strategy counted; written, not read back
  std::optional<ResumedFrom> resumed_from = {};  // written, not read back, as saves
  std::optional<FileRecord> init = {};           // --init; empty: none, or a record of before it was kept
  std::optional<FileRecord> validation = {};     // the tokens of --validation; the same
  std::vector<SaveRecord> saves = {};
  std::vector<RankRecord> ranks = {};
  std::vector<StepRecord> steps = {};
  std::optional<double> validation_loss = {};
  std::optional<TestRecord> test = {};  // written, not read back
  double seconds = 0;                   // from start to end
  std::optional<int> exit_code = {};    // empty: still running, or killed
  std::string message = {};             // of an error
  [[nodiscard]] bool as_predicted() const;
};

/// Times of the steps after the warm-up.
struct StepTiming {
  std::int64_t steps = 0;               // that were timed
  double median = 0, p10 = 0, p90 = 0;  // seconds a step
  double tokens_per_second = 0;         // tokens of the median step over its time
  double wait_share = 0;                // waits of all timed steps over their time
};
inline constexpr std::int64_t kWarmupSteps = 5;
inline constexpr std::int64_t kTimedSteps = 20;  // fewer are no measurement

/// Empty if fewer than kTimedSteps steps follow the warm-up.
std::optional<StepTiming> timing_of(const std::vector<StepRecord>& steps);

/// Writes dir/record.json, complete or not at all; one that is there is replaced.  Errors: InputError (exit
/// 73).
void write_record(FileOps& ops, const Path& dir, const RunRecord& record);
/// What is written there, on one line.
std::string line_of(const RunRecord& record);
/// The same, but false, and nothing is written, if the directory has a record.
bool write_new_record(FileOps& ops, const Path& dir, const RunRecord& record);

/// Errors: InputError (exit 65) with the path and the key (or line and column) that is wrong.
RunRecord read_record(FileOps& ops, const Path& path);

/// A rank as record.json has it, for the way to the rank that writes the record; and a rank from such a text.
///   Errors  InputError (exit 65): a text that text_of() with this world did not make
std::string text_of(const RankRecord& rank, int world);
RankRecord rank_of_text(const std::string& text, int world);

/// dir/steps.jsonl, a line a step while the run goes on, so that a killed run leaves what it had.
class StepLog {
 public:
  /// Creates the file; one that is there is replaced.  Errors: those of atomic_write_file; append()'s is exit
  ///                                                   73.
  StepLog(FileOps& ops, const Path& dir);
  void append(const StepRecord& step);

 private:
  std::unique_ptr<File> file_;
};

/// All complete lines; a last line cut short by a kill is left out.  Errors: InputError (exit 65) with the
/// line.
std::vector<StepRecord> read_steps(FileOps& ops, const Path& path);

/// Creates and returns root/<lesson>/<time in UTC, 2025-01-31T12-00-00>, with "-2", "-3", ... where that is
/// taken.
Path new_run_dir(FileOps& ops, const Path& root, const std::string& lesson,
                 std::chrono::system_clock::time_point now);

/// "2025-01-31T12:00:00Z".
std::string utc_text(std::chrono::system_clock::time_point time);

}  // namespace sc
