#include "common/run/watched_files.h"

#include <algorithm>

#include "common/comm/gather_text.h"

namespace sc::detail {

WatchedFiles::WatchedFiles(std::unique_ptr<FileOps> inner, World& world, double limit_seconds)
    : HookedFileOps(std::move(inner)), world_(world), often_(std::min(1.0, limit_seconds / 4)) {}

bool WatchedFiles::all_say(bool mine) {
  asked_ = std::chrono::steady_clock::now();
  return said_by_all(world_.comm(), mine ? "" : "no").empty();
}

void WatchedFiles::meet() {
  while (!all_say(true)) {
  }
}

void WatchedFiles::writes(const Path& path) {
  world_.comm().record().set_doing(path.empty() ? "" : "writes " + path.string());
  world_.watchdog().writes(!path.empty());
}

void WatchedFiles::before(const FileCall& call) {
  if (!is_mutating(call.op)) return;
  world_.watchdog().moved();
  if (std::this_thread::get_id() != thread_) return;
  if (tells_ && std::chrono::steady_clock::now() - asked_ > often_) (void)all_say(false);
  writes(call.path);
}

void WatchedFiles::after(const FileCall& call, bool /*changed*/) {
  if (is_mutating(call.op) && std::this_thread::get_id() == thread_) writes({});
}

}  // namespace sc::detail
