// Watches what a run writes, so that a slow disk is not taken for a hang, and a disk that does not answer is
// named.
#pragma once

#include <chrono>
#include <memory>
#include <thread>

#include "common/run/world.h"
#include "common/storage/hooked_file_ops.h"

namespace sc::detail {

/// A call that changes what a disk holds counts as progress for this rank's watchdog, and its file as what
/// the rank is doing.
///   Threads  any number; only those of the thread that made this are named, and only that one communicates.
class WatchedFiles final : public HookedFileOps {
 public:
  /// `limit_seconds` is the watchdog's.
  WatchedFiles(std::unique_ptr<FileOps> inner, World& world, double limit_seconds);

  /// While the returned object lives, this rank's calls tell the ranks that wait in meet() that it makes
  /// progress.
  [[nodiscard]] std::shared_ptr<void> writing() {
    tells_ = true;
    return {nullptr, [this](void*) { tells_ = false; }};
  }
  /// Collective: whether every rank says `mine`.
  bool all_say(bool mine);
  /// Collective: returns when all ranks are here. Ranks wait in many short operations, not in a long one that
  /// the watchdog would take for a hang.
  void meet();
  /// This thread writes `path` from now on; empty: nothing.
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
