// What a run writes, so that nobody takes a slow disk for a hang, and one that does not answer has a name.
#pragma once

#include <chrono>
#include <memory>
#include <thread>

#include "common/run/world.h"
#include "common/storage/hooked_file_ops.h"

namespace sc::detail {

/// A call that changes what a disk holds moves this rank's watchdog, and its file is what the rank is doing.
///   Threads  any number; only those of the thread that made it are named, and only that one communicates.
class WatchedFiles final : public HookedFileOps {
 public:
  /// limit_seconds: the watchdog's.
  WatchedFiles(std::unique_ptr<FileOps> inner, World& world, double limit_seconds);

  /// As long as what it returns lives, this rank's calls tell the ranks that are in meet() that it goes on.
  [[nodiscard]] std::shared_ptr<void> writing() {
    tells_ = true;
    return {nullptr, [this](void*) { tells_ = false; }};
  }
  /// Collective: whether every rank says `mine`.
  bool all_say(bool mine);
  /// Collective: returns when all ranks are here. Who waits does so in many short operations, not in one that
  /// the watchdog takes for a hang.
  void meet();
  /// What this thread does from here on: it writes `path`; empty: nothing.
  void writes(const Path& path);

 private:
  void before(const FileCall& call) override;
  void after(const FileCall& call, bool changed) override;

  World& world_;
  const std::thread::id thread_ = std::this_thread::get_id();
  const std::chrono::duration<double> often_;
  std::chrono::steady_clock::time_point asked_ = {};  // when the ranks last told each other
  bool tells_ = false;
};

}  // namespace sc::detail
