// Locks what a run writes against other runs for its lifetime.
#pragma once

#include <memory>
#include <vector>

#include "common/run/train_job.h"
#include "common/storage/run_lock.h"

namespace sc::detail {

/// On rank 0: locks the directory of checkpoints in which it saves (exclusive), the one that it resumes from
/// (shared), and the file of --save. Does nothing on other ranks.
class RunLocks {
 public:
  /// Takes all locks.
  ///   Errors  InputError: another run has one of them (exit 64), or it cannot be written (exit 73).
  explicit RunLocks(const TrainJob& job);
  /// Releases the locks where a process ends without destructors. If run.sh restarts the run, it keeps them.
  void leave();

 private:
  void take(const Path& lock_file, LockMode mode, const std::string& where, const std::string& what,
            const std::string& fix);

  std::unique_ptr<FileOps> ops_;
  LockOwner owner_;
  std::string warned_;
  std::vector<std::unique_ptr<RunLock>> locks_;
};

/// Checks on rank 0, before it writes to the directory, that this run still has its lock.
///   Errors  InputError (exit 73): a run on another host took this one for dead.
void require_held(FileOps& ops, const Path& checkpoints);

}  // namespace sc::detail
