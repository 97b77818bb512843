// Watches what a run writes: a slow disk is not taken for a hang, and one that does not answer is named.
#pragma once

#include <chrono>
#include <memory>
#include <thread>

#include "common/run/world.h"
#include "common/storage/hooked_file_ops.h"

namespace sc::detail {

/// Tells the watchdog of every call that changes what a disk holds: the call counts as this rank's progress,
/// and its file as what the rank is doing.
///   Threads  any number; only those of the thread that made this are named, and only that one communicates.
class WatchedFiles final : public HookedFileOps {
 public:
  WatchedFiles(std::unique_ptr<FileOps> inner, World& world, double limit_seconds);

  /// While the returned object lives, this rank's calls count as progress for the ranks that wait in meet().
  [[nodiscard]] std::shared_ptr<void> writing() {
    tells_ = true;
    return {nullptr, [this](void*) { tells_ = false; }};
  }
  /// Whether every rank says `mine`. Collective.
  bool all_say(bool mine);
  /// Returns when all ranks are here. Collective. Ranks wait in many short operations, not in a long one that
  /// the watchdog would take for a hang.
  void meet();
  /// Says that this thread writes `path` from now on, or with an empty path nothing.
  void writes(const Path& path);

 private:
  void before(const FileCall& call) override;
  void after(const FileCall& call, bool changed) override;

  World& world_;
  const std::thread::id thread_ = std::this_thread::get_id();
  const std::chrono::duration<double> often_;
  std::chrono::steady_clock::time_point asked_ = {};  // when the ranks last exchanged their state
  bool tells_ = false;
};

}  // namespace sc::detail
