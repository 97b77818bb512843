#include "common/run/saver.h"

#include <c10/core/InferenceMode.h>
#include <spdlog/fmt/fmt.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <atomic>
#include <filesystem>

#include "common/base/check.h"
#include "common/base/finite.h"
#include "common/comm/gather_text.h"
#include "common/config/workload_table.h"
#include "common/memory/ledger.h"
#include "common/run/describe.h"
#include "common/run/run_files.h"
#include "common/run/run_locks.h"
#include "common/storage/crash_at.h"
#include "common/strategy/nonfinite.h"
#include "common/watch/launch.h"

namespace sc::detail {
namespace {

using Clock = std::chrono::steady_clock;
constexpr const char* kNoPlace = "no checkpoint can be written here";

// Refuses a directory in which something else has a generation's name.
void require_names(FileOps& ops, const Path& dir) {
  if (ops.kind(dir) == PathKind::absent) return;
  for (const std::string& name : ops.list(dir)) {
    if (!checkpoint::step_of_name(name) || ops.kind(dir / name) == PathKind::directory) continue;
    throw InputError(ExitCode::cannot_write, (dir / name).string(),
                     "bears a checkpoint's name, and is no directory", "move it away");
  }
}

// The newest checkpoint that this run did not make. Empty if there is none, or if this run resumes from it.
// If --resume names a directory, newer ones have already been passed over as damaged.
std::string newest_of_others(const Saver::Parts& parts, FileOps& ops, const Path& dir) {
  const std::vector<checkpoint::Generation> there = checkpoint::generations(ops, dir);
  if (there.empty()) return "";
  const auto own = std::ranges::find_if(there, [&](const checkpoint::Generation& generation) {
    std::error_code is_none;
    return std::filesystem::equivalent(generation.path, parts.resumed, is_none);
  });
  const bool named = parts.resumed == Path(parts.job.line.checkpoints.resume);
  const bool goes_on = own != there.end() && (!named || own + 1 == there.end());
  return goes_on ? "" : there.back().path.filename().string();
}

}  // namespace

/// A save, from its beginning to the step at which all ranks know that it has ended.
struct Saver::InFlight {
  Position position;
  std::string pending;              // Strategy::pending()
  std::optional<SavedState> state;  // values are read from here as they are written
  std::vector<checkpoint::Entry> entries;
  std::unique_ptr<AtomicDir> dir;  // rank 0's
  Path path;                       // of the files, until they are committed
  Clock::time_point began = Clock::now();
  double blocked = 0;
  std::atomic<std::int64_t> written = 0;  // in bytes
  // Only the writing thread uses `sums` and `nonfinite` until `done`.
  std::string sums;
  std::string nonfinite;  // the first weight that is not finite
  Trouble trouble;
  std::atomic<bool> done = false;
  std::jthread thread;
};

Saver::Saver(const Parts& parts)
    : parts_(parts),
      // --crash-at counts only the file operations of saves.
      crashing_(parts.job.line.checkpoints.crash_at > 0 && parts.job.launch.rank == Rank{0}
                    ? crash_at(parts.job.line.checkpoints.crash_at, posix_file_ops())
                    : nullptr),
      ops_(crashing_ ? crashing_.get() : &parts_.files),
      dir_(checkpoints_dir(parts.job)) {
  for (const Buffer& item : parts.job.plans.own.memory.items())
    if (item.purpose == Purpose::checkpoint) copy_ = parts.ledger.zeros(item);
  refuse_others();
  require_place();
}

// Refuses a directory with another run's checkpoints: two runs would remove each other's, and resuming would
// take the one that got further, whichever run made it.
void Saver::refuse_others() {
  const std::string newest = broadcast_string(
      parts_.comm, parts_.comm.rank() == Rank{0} ? newest_of_others(parts_, *ops_, dir_) : "");
  if (newest.empty()) return;
  if (parts_.resumed.empty())
    throw InputError(ExitCode::usage, "--save-every",
                     fmt::format("{} holds checkpoints of an earlier run, up to {}", dir_.string(), newest),
                     "--resume latest goes on from there; to begin again, remove them or name another "
                     "directory with --checkpoints");
  throw InputError(
      ExitCode::usage, "--save-every",
      fmt::format("{} holds checkpoints up to {}, and this run goes on from {}", dir_.string(), newest,
                  parts_.resumed.string()),
      fmt::format("--resume latest goes on from {}; otherwise name another directory with --checkpoints, or "
                  "move away those that this run does not go on from",
                  newest));
}

// Checks before the first step, rather than a hundred steps later, that every rank can write a file of the
// required size where checkpoints will be, and that there is space for all of them.
void Saver::require_place() {
  const SavedState state(parts_.strategy, parts_.strategy.layout(), parts_.comm);
  const checkpoint::FileId id{.step = 0, .rank = to_int(parts_.comm.rank())};
  const Bytes own = checkpoint::bytes_needed(id, state.entries());
  Bytes all(0);
  for (const std::vector<std::int64_t>& of_rank : gather_values<std::int64_t>(parts_.comm, {own.value()}))
    all += Bytes(of_rank.front());
  FileOps& ops = parts_.files;
  std::optional<AtomicDir> trial;
  together(kNoPlace, parts_.comm.rank() == Rank{0}, [&] {
    const CheckpointFlags& asked = parts_.job.line.checkpoints;
    // Space is needed for one generation more than is kept, each with a directory, a manifest and a file per
    // rank.
    const std::int64_t most = std::min(asked.keep + 1, parts_.job.shape.workload.steps / asked.every);
    const std::int64_t there = std::ssize(checkpoint::generations(ops, dir_));
    checkpoint::require_free_space(
        ops, dir_, all, std::max(most - there, std::int64_t{1}) * (to_int(parts_.comm.size()) + 2));
    require_names(ops, dir_);
    require_held(ops, dir_);
    trial.emplace(ops, dir_ / "trial", AtomicDir::Existing::replace, checkpoint::is_file_of_checkpoint);
  });
  const Path path = broadcast_string(parts_.comm, trial ? trial->path().string() : "");
  together(kNoPlace, true, [&] {
    const auto file = create_only(ops, path / checkpoint::file_name(to_int(parts_.comm.rank())));
    file->append(as_bytes("trial"));
    require_size_allowed(file->path(), own);
  });
}

Saver::~Saver() = default;

void Saver::Trouble::note(const InputError& refused) {
  text = text_without_fix(refused);
  fix = refused.fix();
}

Saver::Trouble Saver::trouble_of(bool acts, const std::function<void()>& act) {
  Trouble trouble;
  try {
    if (acts) act();
  } catch (const InputError& refused) {
    trouble.note(refused);
  }
  return trouble;
}

void Saver::together(const char* what, bool acts, const std::function<void()>& act) {
  agree(trouble_of(acts, act), what);
}

void Saver::agree(const Trouble& mine, const char* what) {
  const std::string said = said_by_all(parts_.comm, mine.text);
  if (said.empty()) return;
  const std::string fix = fix_for_all(mine);
  if (in_flight_) in_flight_->dir.reset();
  in_flight_.reset();
  throw InputError(ExitCode::cannot_write, dir_.string(), fmt::format("{}: {}", what, said), fix);
}

// The fix of the first rank that has one, and how to resume from what was saved before, if anything was.
std::string Saver::fix_for_all(const Trouble& mine) const {
  std::string fix;
  for (const std::string& of_rank : gather_strings(parts_.comm, mine.fix)) {
    if (fix.empty()) fix = of_rank;
  }
  if (parts_.comm.rank() == Rank{0}) {
    std::string newest;
    try {
      for (const checkpoint::Generation& there : checkpoint::generations(*ops_, dir_)) {
        if (checkpoint::is_checkpoint(*ops_, there.path)) newest = there.path.filename().string();
      }
    } catch (const InputError&) {  // the directory cannot even be listed
    }
    fix += newest.empty() ? "; or another directory with --checkpoints"
                          : fmt::format(
                                "; then --resume latest goes on, or --resume {} with another directory: "
                                "--checkpoints DIR. {} stands",
                                dir_.string(), newest);
  }
  return broadcast_string(parts_.comm, fix);
}

void Saver::save(const Position& position) {
  settle(true);
  const Clock::time_point began = Clock::now();
  begin(position);
  if (copy_.defined()) {
    // [anchor: copy-then-write]
    // From here on the run may change its state: the file is written from the copy.
    in_flight_->state->copy(copy_);
    in_flight_->state.reset();
    in_flight_->thread = std::jthread([this] { write(); });
    in_flight_->blocked = seconds_since(began);
    return;
  }
  {
    const auto writing = parts_.files.writing();
    write();
  }
  wait();
  commit();
  saves_.back().blocked = seconds_since(began);
}

// Collects the values of the step, and tells all ranks where to write.
void Saver::begin(const Position& position) {
  parts_.strategy.quiet();
  in_flight_ = std::make_unique<InFlight>();
  in_flight_->position = position;
  in_flight_->state.emplace(parts_.strategy, parts_.strategy.layout(), parts_.comm);
  in_flight_->entries = in_flight_->state->entries();
  in_flight_->pending = parts_.strategy.pending();
  std::string path;
  together(kNoPlace, parts_.comm.rank() == Rank{0}, [&] {
    const Path target = dir_ / checkpoint::generation_name(position.step);
    // The target exists if the run was taken back to an earlier step.
    const bool there = ops_->kind(target) != PathKind::absent;
    require_held(*ops_, dir_);
    make_dirs(*ops_, dir_);
    in_flight_->dir = std::make_unique<AtomicDir>(
        *ops_, target, there ? AtomicDir::Existing::replace : AtomicDir::Existing::refuse,
        checkpoint::is_file_of_checkpoint);
    path = in_flight_->dir->path().string();
  });
  in_flight_->path = broadcast_string(parts_.comm, path);
}

// Writes this rank's file, on a thread of its own or on the run's.
void Saver::write() {
  InFlight& save = *in_flight_;
  try {
    const c10::InferenceMode inference;
    const checkpoint::FileId id{.step = save.position.step, .rank = to_int(parts_.comm.rank())};
    checkpoint::require_free_space(*ops_, save.path, checkpoint::bytes_needed(id, save.entries));
    checkpoint::FileWriter out(*ops_, save.path, id, save.entries);
    const auto put = [&](std::size_t i, std::span<const std::byte> piece) {
      const checkpoint::Entry& entry = save.entries[i];
      const bool weights =
          entry.key.purpose == name_of(Purpose::parameters) || entry.key.purpose == name_of(Purpose::master);
      if (weights && save.nonfinite.empty() && first_nonfinite(piece, entry.dtype))
        save.nonfinite = entry.key.tensor;
      out.write(i, piece);
    };
    if (save.state) {
      save.state->read(put);
    } else {
      const auto* from = static_cast<const std::byte*>(copy_.const_data_ptr());
      for (std::size_t i = 0; i < save.entries.size(); ++i) {
        for_each_piece({0, save.entries[i].range.size()}, [&](Range piece) {
          const Bytes size = bytes_of(Elements(piece.size()), save.entries[i].dtype);
          put(i, {from, static_cast<std::size_t>(size.value())});
          from += size.value();
          save.written += size.value();
        });
      }
    }
    save.sums = checkpoint::text_of(out.finish());
  } catch (const InputError& refused) {
    save.trouble.note(refused);
  } catch (const std::exception& error) {
    save.trouble.text = error.what();
  }
  save.done = true;
}

// Removes old checkpoints. The new one is complete, so one that cannot be removed does not end the run.
void Saver::remove_old(std::int64_t newest) {
  try {
    for (const checkpoint::PassedOver& old :
         checkpoint::remove_old_generations(*ops_, dir_, newest, parts_.job.line.checkpoints.keep)) {
      if (stays_.insert(old.path).second) spdlog::warn("an old checkpoint stays: {}", old.why);
    }
  } catch (const InputError& refused) {
    spdlog::warn("an old checkpoint stays: {}", text_without_fix(refused));
  }
}

// Waits for all ranks' files. A slow disk makes progress; one that stops answering is a hang.
void Saver::wait() {
  Clock::time_point moved = Clock::now();
  for (std::int64_t before = 0; !parts_.files.all_say(in_flight_->done);) {
    if (in_flight_->done) continue;
    const std::int64_t written = in_flight_->written;
    if (written != before) moved = Clock::now();
    before = written;
    if (seconds_since(moved) < parts_.job.line.watchdog_seconds) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    } else {
      parts_.files.writes(in_flight_->path);
      in_flight_->thread.join();
    }
  }
}

void Saver::settle(bool must_end) {
  if (!in_flight_) return;
  const Clock::time_point began = Clock::now();
  if (must_end) {
    wait();
  } else if (!parts_.files.all_say(in_flight_->done)) {
    in_flight_->blocked += seconds_since(began);
    return;
  }
  commit();
  saves_.back().blocked += seconds_since(began);
}

// [anchor: all-or-nothing]
// Either all files are on the device, and then get their name, or none counts.
void Saver::commit() {
  InFlight& save = *in_flight_;
  agree(save.trouble, "a checkpoint was not written");
  require_finite();
  const std::vector<std::string> sums = gather_strings(parts_.comm, save.sums);
  const Trouble trouble = trouble_of(parts_.comm.rank() == Rank{0}, [&] {
    const auto writing = parts_.files.writing();
    const checkpoint::Manifest all = manifest(save.position, sums);
    require_held(*ops_, dir_);
    checkpoint::commit_generation(*ops_, *save.dir, all);
    const auto now = std::chrono::system_clock::now().time_since_epoch() / std::chrono::milliseconds(1);
    leave_sign(fmt::format("saved {} {}", save.position.step, now), process_environment());
    remove_old(save.position.step);
  });
  parts_.files.meet();  // the others answer writing()'s messages
  agree(trouble, "a checkpoint was not completed");
  saves_.push_back({save.position.step, save.blocked, seconds_since(save.began)});
  in_flight_.reset();
}

// Refuses to save weights that are not finite: resuming from them would be useless, and an older good
// checkpoint would have been removed.
void Saver::require_finite() {
  const std::string said = said_by_all(parts_.comm, in_flight_->nonfinite);
  if (said.empty()) return;
  const std::string what = fmt::format("the checkpoint after {} steps: {} holds a number that is not finite",
                                       in_flight_->position.step, said);
  if (parts_.job.shape.workload.optim.nonfinite == OnNonFinite::stop) in_flight_.reset();
  stop_or_warn(parts_.job.shape, what,
               "a checkpoint of before it, then a smaller optim.lr; nothing was written");
}

// Describes a save; `sums` are those of every rank's file.
checkpoint::Manifest Saver::manifest(const Position& position, const std::vector<std::string>& sums) {
  const TrainJob& job = parts_.job;
  const Workload& workload = job.shape.workload;
  if (!data_) data_ = fingerprint_of(parts_.tokens);
  checkpoint::Manifest manifest{.step = position.step,
                                .updates = position.updates,
                                .tokens_per_step = workload.batch.global * workload.batch.sequence,
                                .rows = position.rows,
                                .tokens = position.tokens,
                                .scaler = position.scaler,
                                .skips_in_a_row = position.skips_in_a_row,
                                .lesson = job.lesson.info.name,
                                .world = to_int(job.shape.mesh.world()),
                                .workload = values_of(workload),
                                .workload_hash = workload_hash(workload),
                                .strategy = values_of(job.lesson.options),
                                .commit = source_commit(),
                                .arithmetic = job.arithmetic,
                                .data = *data_,
                                .tensors = tensors_of(parts_.strategy.layout()),
                                .extra = in_flight_->pending,
                                .files = {}};
  for (const std::string& text : sums)
    manifest.files.push_back(checkpoint::sums_of_text(text, "a rank's sums"));
  return manifest;
}

}  // namespace sc::detail
