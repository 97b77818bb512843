// What a run writes, held against other runs for its life.
#pragma once

#include <memory>
#include <vector>

#include "common/run/train_job.h"
#include "common/storage/run_lock.h"

namespace sc::detail {

/// On rank 0: the directory of checkpoints where it saves, exclusively; the one that it goes on from, shared;
/// the file of --save. On other ranks nothing.
class RunLocks {
 public:
  ///   Errors  InputError: another run holds one of them (exit 64), or it cannot be written (exit 73).
  explicit RunLocks(const TrainJob& job);
  /// At the end of a process that runs no destructors. What run.sh starts again stays held by run.sh.
  void leave();

 private:
  void take(const Path& lock_file, LockMode mode, const std::string& where, const std::string& what,
            const std::string& fix);

  std::unique_ptr<FileOps> ops_;
  LockOwner owner_;
  std::string warned_;
  std::vector<std::unique_ptr<RunLock>> locks_;
};

/// On rank 0, before it writes there.
///   Errors  InputError (exit 73): a run on another host took this one for gone.
void require_held(FileOps& ops, const Path& checkpoints);

}  // namespace sc::detail
