#include "common/run/run_locks.h"

#include <spdlog/fmt/fmt.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "common/run/resume.h"
#include "common/storage/atomic_dir.h"
#include "common/storage/checkpoint/generations.h"
#include "common/strategy/weights.h"

namespace sc::detail {
namespace {

constexpr const char* kLock = ".lock";

bool same(const Path& a, const Path& b) {
  std::error_code is_none;
  return std::filesystem::weakly_canonical(a, is_none) == std::filesystem::weakly_canonical(b, is_none);
}

Path resumed_dir(const TrainJob& job) {
  const std::string& asked = job.line.checkpoints.resume;
  if (asked == "latest") return checkpoints_dir(job);
  const Path named = asked.ends_with('/') ? Path(asked).parent_path() : Path(asked);
  return checkpoint::step_of_name(named.filename().string()) ? parent_of(named) : named;
}

}  // namespace

void require_held(FileOps& ops, const Path& checkpoints) {
  const Path file = checkpoints / kLock;
  if (ops.kind(file) == PathKind::absent) return;
  const std::optional<LockOwner> named = lock_owner_of_text(read_file(ops, file));
  if (!named || named == this_lock_owner(std::getenv("STAGECRAFT_HOLDER"))) return;
  throw InputError(
      ExitCode::cannot_write, file.string(),
      fmt::format("process {} on {} took this run for gone, and its place", named->pid, named->host),
      "let that run end, or stop it");
}

RunLocks::RunLocks(const TrainJob& job)
    : ops_(posix_file_ops()), owner_(this_lock_owner(std::getenv("STAGECRAFT_HOLDER"))) {
  if (job.launch.rank != Rank{0}) return;
  const CheckpointFlags& asked = job.line.checkpoints;
  const Path dir = checkpoints_dir(job), from = asked.resume.empty() ? dir : resumed_dir(job);
  if (asked.every > 0)
    take(dir / kLock, LockMode::exclusive, "--save-every", dir.string(),
         "another directory with --checkpoints, or wait until that run has ended");
  if (!asked.resume.empty() && (asked.every == 0 || !same(from, dir)))
    take(from / kLock, LockMode::shared, "--resume " + asked.resume, from.string(),
         "wait until that run has ended; or copy a checkpoint, go on from the copy, and save elsewhere with "
         "--checkpoints");
  if (job.line.save.empty()) return;
  const Path save = job.line.save;
  check_save_path(*ops_, save, job.shape.workload.model);
  take(parent_of(save) / fmt::format(".{}.lock", save.filename().string()), LockMode::exclusive,
       "--save " + job.line.save, "the file", "wait until that run has ended, or save to another file");
}

void RunLocks::take(const Path& lock_file, LockMode mode, const std::string& where, const std::string& what,
                    const std::string& fix) {
  LockOwner owner = owner_;
  owner.mode = mode;
  const auto warn = [this](const std::string& text) {
    if (std::exchange(warned_, text) != text) spdlog::warn(text);
  };
  locks_.push_back(
      std::make_unique<RunLock>(*ops_, RunLock::Asked{lock_file, owner, where, what, fix, warn}));
}

void RunLocks::leave() {
  if (owner_.pid == ::getpid()) locks_.clear();
}

}  // namespace sc::detail
