// What one run at a time may write: a folder of checkpoints, a file of weights. No torch.
//
// A hold is a locked file beside or inside it, in which the owner is named. The lock goes with the process
// that has it, so what a killed run leaves is free. Where the file system has no locks the file itself is the
// hold (made by O_EXCL), and counts as long as the process that it names lives.
//
// Locks may hold within a host alone. So a owner counts in the file, once a second, and of one on another
// host it is watched for ten seconds whether it still does: no two clocks are compared.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "common/storage/file_ops.h"

namespace sc {

/// A process, in a way that no later one shares.
struct LockOwner {
  std::int64_t pid = 0;
  std::int64_t started = 0;  // clock ticks from its host's boot to its start (/proc/<pid>/stat)
  std::string host;
  LockMode mode = LockMode::exclusive;
  bool operator==(const LockOwner&) const = default;
};

/// This process; or the one that starts runs in turn and holds what they write between them, too, if `named`
/// ("pid started host", STAGECRAFT_HOLDER of launch.sh) is one.
LockOwner this_lock_owner(const char* named);

/// What a lock file says first. Nothing where it is empty or somebody else's.
std::string text_of(const LockOwner& owner);
std::optional<LockOwner> lock_owner_of_text(const std::string& text);

/// Held until it is destroyed, or the process ends.
class RunLock {
 public:
  struct Asked {
    Path file;          // the lock file; missing directories are made for an exclusive hold
    LockOwner owner;    // with the mode
    std::string where;  // of a refusal: the flag that asked for it
    std::string what;   // "runs/x/checkpoints"
    std::string fix;
    std::function<void(const std::string&)> warn;
    std::chrono::milliseconds beat{1000};
  };
  /// Shared: several runs that only read may hold it together; where nobody could write the lock file there
  /// is nothing to hold it against.
  ///   Errors  InputError: exit 64, naming the process that holds it; exit 73 where it cannot be written.
  RunLock(FileOps& ops, Asked asked);
  /// Removes the lock file, and the directory if this hold made it and nothing else is in it.
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sc
