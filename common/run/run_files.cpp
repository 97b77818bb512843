#include "common/run/run_files.h"

#include <spdlog/fmt/fmt.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <utility>

#include "common/comm/gather_text.h"
#include "common/config/workload_table.h"
#include "common/run/describe.h"
#include "common/run/resume.h"
#include "common/storage/atomic_dir.h"
#include "common/watch/launch.h"

namespace sc::detail {
namespace {

constexpr const char* kRecord = "record.json";

Path from_environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? Path() : Path(value);
}

// Whether the directory exists or can be made, and this user may write there.
bool may_write(Path path) {
  std::error_code is_none;  // set also if this user may not look there
  while (!std::filesystem::exists(path, is_none) && path.has_relative_path()) path = path.parent_path();
  return ::access(path.c_str(), W_OK) == 0;
}

RankRecord this_rank(const TrainJob& job, const Claims& claims) {
  const Hardware hardware = describe_hardware();
  RankRecord r{job.shape.rank,
               hardware.host,
               hardware.cpu,
               hardware.cores,
               hardware.memory,
               bytes_of(job.plans.own.memory),
               job.plans.own.operations,
               {},
               {}};
  if (const Measured* measured = claims.measured(); measured != nullptr) {
    r.measured_bytes = measured->peak;
    r.measured_operations = measured->operations;
  }
  return r;
}

Path make_run_dir(FileOps& files, const TrainJob& job) {
  if (job.line.out.empty())
    return new_run_dir(files, "runs", job.lesson.info.name, std::chrono::system_clock::now());
  const Path dir = job.line.out;
  make_dirs(files, dir);
  for (const char* name : {"steps.jsonl", "trace.json", "costs.json"}) require_replaceable(files, dir / name);
  return dir;
}

}  // namespace

std::map<std::string, std::string> values_of(const FieldSet& fields) {
  std::map<std::string, std::string> values;
  for (const Field& field : fields.fields()) values[field.path] = field.get();
  return values;
}

std::map<std::string, std::string> values_of(Workload workload) {
  return values_of(workload_fields().bind(workload));
}

Path cache_dir() {
  const Path here = Path(STAGECRAFT_SOURCE_DIR) / ".cache";
  if (const Path named = from_environment("STAGECRAFT_CACHE"); !named.empty()) return named;
  Path own = from_environment("XDG_CACHE_HOME"), home = from_environment("HOME");
  if (!own.is_absolute() && home.is_absolute()) own = home / ".cache";
  own /= "stagecraft";
  if (!may_write(here) && own.is_absolute() && may_write(own)) return own;
  return here;
}

FileRecord record_of_file(const std::string& named, const Path& path) {
  const checkpoint::DataFingerprint found = fingerprint_of(path);
  return {named, found.bytes, fmt::format("{:016x}", found.sum)};
}

RunFiles::RunFiles(FileOps& files, const TrainJob& job, RunRecord begun, Communicator& comm)
    : files_(files), job_(job), record_(std::move(begun)) {
  if (job_.speaks()) {
    dir_ = make_run_dir(files, job);
    // The process that creates the record owns the directory, so one of two simultaneous runs gets it.
    if (!write_new_record(files_, dir_, record_))
      throw InputError(ExitCode::usage, "--out " + job.line.out, "it holds the record of another run",
                       "another directory, or remove that one");
    leave_sign("out " + std::filesystem::absolute(dir_).string(), process_environment());
  }
  dir_ = broadcast_string(comm, dir_.string());
  if (!job_.speaks()) return;
  log_.emplace(files, dir_);
}

void RunFiles::gather(const Claims& claims, Timeline& timeline, const ParamLayout& layout,
                      RecordingCommunicator& comm) {
  const int world = static_cast<int>(to_int(job_.shape.mesh.world()));
  const std::vector<std::string> ranks = gather_strings(comm, text_of(this_rank(job_, claims), world));
  if (job_.line.trace && !traced_.empty()) {
    Trace trace(job_.shape.rank, Trace::Clock::time_point{});  // the clock is the host's, so ranks line up
    std::vector<OpSpan> spans = comm.record().spans();
    std::erase_if(
        // With --profile operations after the traced steps are kept too, but the trace does not show them.
        spans, [&](const OpSpan& s) { return s.step >= job_.traced_end(); });
    trace.add_run(traced_, spans, timeline.drawn(), static_cast<int>(job_.shape.workload.model.layers) + 1);
    const std::vector<std::string> parts = gather_strings(comm, trace.serialise());
    if (job_.speaks()) {
      trace_ = dir_ / "trace.json";
      atomic_write_file(files_, trace_, merge_traces(parts));
    }
  }
  if (job_.line.page) {
    const RankMarks marks = marks_of(timeline, comm.record().spans());
    page_ranks_ = gather_strings(
        comm, text_of(job_.shape.rank, marks, job_.plans.contents, job_.plans.own.memory, layout));
  }
  if (!job_.speaks()) return;
  for (const std::string& rank : ranks) record_.ranks.push_back(rank_of_text(rank, world));
}

RankMarks RunFiles::marks_of(Timeline& timeline, const std::vector<OpSpan>& spans) const {
  timeline.settle();
  RankMarks marks{marked_, timeline.marked(), {}, {}};
  for (const OpSpan& op : spans)
    if (op.phase == Phase::train && job_.marks(op.step)) marks.operations.push_back(op);
  if (marked_.empty()) return marks;
  const GptConfig& model = job_.shape.workload.model;
  const ModelFacts facts{static_cast<int>(model.layers) + 1, model.tied,
                         job_.shape.mesh.world() == WorldSize{1}};
  marks.content_changes = content_changes_of(
      job_.plans.contents, facts, {marks.spans, timeline.changes(), marks.operations, marked_[0].begin});
  return marks;
}

void RunFiles::write_page(const ParamLayout& layout) noexcept {
  if (!job_.line.page || !job_.speaks()) return;
  const Path path = dir_ / "page.html";
  try {
    const Path frame = Path(STAGECRAFT_SOURCE_DIR) / "common/records/page/template.html";
    atomic_write_file(files_, path,
                      html_of({job_.lesson.info.question, record_, layout, page_ranks_, job_.shape.mesh},
                              read_file(files_, frame)));
    page_ = path;
  } catch (const InputError& error) {
    spdlog::warn("no page: {}", text_without_fix(error));
  } catch (const std::exception& error) {
    spdlog::warn("no page: {}", error.what());
  }
}

Path RunFiles::finish(RunRecord ended) {
  if (!job_.speaks()) return {};
  ended.ranks = std::move(record_.ranks);
  ended.exit_code = 0;
  record_ = std::move(ended);
  write_record(files_, dir_, record_);
  if (record_.timetable && !record_.timetable->costs.empty())
    atomic_write_file(files_, dir_ / "costs.json", record_.timetable->costs);
  return dir_ / kRecord;
}

Path RunFiles::fail(int exit_code, const std::string& message,
                    std::chrono::steady_clock::time_point began) noexcept {
  try {
    RunRecord record = job_.speaks() ? record_ : read_record(files_, dir_ / kRecord);
    record.steps = read_steps(files_, dir_ / "steps.jsonl");
    record.exit_code = exit_code;
    record.message = message;
    // The time is taken after reading the steps, since one may have ended while a signal was handled.
    record.seconds = seconds_since(began);
    write_record(files_, dir_, record);
    return dir_ / kRecord;
  } catch (const std::exception& error) {
    spdlog::warn("no record of the failure: {}", error.what());
    return {};
  }
}

}  // namespace sc::detail
