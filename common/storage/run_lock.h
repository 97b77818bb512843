// Locks what only one run at a time may write: a directory of checkpoints, a file of weights. No torch.
//
// A lock is a file next to the target or inside it, which names its owner. A kernel lock on that file ends
// with the process, so whatever a killed run had is free again. On a file system without locks the file
// itself is the lock (made by O_EXCL); it is valid while the process that it names lives.
//
// Kernel locks may not reach other hosts. So an owner increments a counter in the file every second, and an
// owner on another host is watched for ten seconds to see whether the counter moves; clocks are never
// compared.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "common/storage/file_ops.h"

namespace sc {

/// Identifies a process: no later process is equal to it.
struct LockOwner {
  std::int64_t pid = 0;
  std::int64_t started = 0;  // clock ticks from its host's boot to its start (/proc/<pid>/stat)
  std::string host;
  LockMode mode = LockMode::exclusive;
  bool operator==(const LockOwner&) const = default;
};

/// The launcher that `named` identifies, if it is alive; otherwise this process. A launcher starts runs in
/// turn and keeps the lock between them: launch.sh sets STAGECRAFT_HOLDER to "<pid> <start in clock ticks>
/// <host>".
LockOwner this_lock_owner(const char* named);

/// Turns an owner into the text at the beginning of a lock file, and back; nullopt for any other text.
std::string text_of(const LockOwner& owner);
std::optional<LockOwner> lock_owner_of_text(const std::string& text);

/// A lock that is held until destruction or the end of the process.
class RunLock {
 public:
  struct Asked {
    Path file;          // the lock file; missing directories are made for an exclusive lock
    LockOwner owner;    // also says whether the lock is shared
    std::string where;  // for errors: the flag that asked for it
    std::string what;   // for errors: e.g. "runs/x/checkpoints"
    std::string fix;
    std::function<void(const std::string&)> warn;
    std::chrono::milliseconds beat{1000};
  };
  /// Takes the lock. Several runs that only read may share it. If this user cannot write the lock file, a
  /// shared lock needs none, because no other run of this user can write there either.
  ///   Errors  InputError: exit 64, naming the process that holds it; exit 73 if it cannot be written.
  RunLock(FileOps& ops, Asked asked);
  /// Removes the lock file, and its directory if this object made that and nothing else is in it.
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sc
