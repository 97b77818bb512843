#include "common/storage/run_lock.h"

#include <spdlog/fmt/fmt.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <future>
#include <sstream>
#include <thread>

namespace sc {
namespace {

std::string this_host() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
}

/// When a process started, in clock ticks since boot; nullopt if no such process runs, or only a zombie.
std::optional<std::int64_t> start_of(std::int64_t pid) {
  constexpr int kState = 3, kStart = 22;  // proc(5), counted from 1; the second, the name, may hold anything
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string stat, word;
  std::getline(file, stat);
  const std::size_t bracket = stat.rfind(')');
  if (bracket == std::string::npos) return std::nullopt;
  std::istringstream in(stat.substr(bracket + 1));
  for (int field = kState; field < kStart && in >> word; ++field) {
    if (field == kState && (word == "Z" || word == "X")) return std::nullopt;
  }
  std::int64_t start = 0;
  return in >> start ? std::optional(start) : std::nullopt;
}

bool is_alive(const LockOwner& owner) {
  return owner.host == this_host() && start_of(owner.pid) == owner.started;
}

bool same_process(const LockOwner& a, const LockOwner& b) {
  return a.pid == b.pid && a.started == b.started && a.host == b.host;
}

}  // namespace

LockOwner this_lock_owner(const char* named) {
  LockOwner owner;
  std::istringstream in(named == nullptr ? "" : named);
  if (in >> owner.pid >> owner.started >> owner.host && is_alive(owner)) return owner;
  return {.pid = ::getpid(), .started = start_of(::getpid()).value_or(0), .host = this_host()};
}

std::string text_of(const LockOwner& owner) {
  return fmt::format("{} by process {} started {} on {}\n",
                     owner.mode == LockMode::exclusive ? "written" : "read", owner.pid, owner.started,
                     owner.host);
}

std::optional<LockOwner> lock_owner_of_text(const std::string& text) {
  LockOwner owner;
  std::string mode, word;
  std::istringstream in(text);
  if (!(in >> mode >> word >> word >> owner.pid >> word >> owner.started >> word >> owner.host))
    return std::nullopt;
  owner.mode = mode == "read" ? LockMode::shared : LockMode::exclusive;
  return text.starts_with(text_of(owner)) ? std::optional(owner) : std::nullopt;
}

class RunLock::Impl {
 public:
  Impl(FileOps& ops, Asked asked) : ops_(ops), asked_(std::move(asked)) {
    using namespace std::chrono_literals;
    const Path dir = parent_of(asked_.file);
    if (asked_.owner.mode == LockMode::exclusive) {
      made_dir_ = ops_.kind(dir, FileIntent::write) == PathKind::absent;
      make_dirs(ops_, dir);
    } else if (ops_.kind(dir) != PathKind::directory) {
      return;  // there is nothing to read
    }
    // Another process may be about to sign the file or to remove it, so the file is examined for a moment.
    constexpr int kTries = 40;
    for (int i = 0; i < kTries; ++i) {
      if (take()) return;
      std::this_thread::sleep_for(25ms);
    }
    refuse();
  }

  ~Impl() {
    ends_.set_value();
    beats_ = {};
    try {
      if (held_) release();
      if (made_dir_ && ops_.list(parent_of(asked_.file)).empty()) ops_.remove(parent_of(asked_.file));
    } catch (...) {  // the file is nobody's as soon as this process has ended
    }
  }

  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

 private:
  // Tries once to take the lock; false: try again. Refuses if the file names a living process.
  bool take() {
    const bool shared = asked_.owner.mode == LockMode::shared;
    bool made = false;
    try {
      made = make_file();
    } catch (const InputError&) {
      if (!shared || ops_.kind_of_name(asked_.file, FileIntent::read) != PathKind::absent) throw;
      return true;  // no process of this user can write here
    }
    auto lock = try_lock_if_any(ops_, asked_.file, asked_.owner.mode);
    const std::optional<LockOwner> other = named();
    const bool another = other && !same_process(*other, asked_.owner);
    const bool excludes = another && !(shared && other->mode == LockMode::shared);
    // A launcher that keeps the lock between runs has no kernel lock then, but its name is in the file.
    if (excludes && is_alive(*other)) refuse();
    if (lock && *lock == nullptr) return false;
    if (excludes && other->host != this_host() && !stands_still(*other)) refuse();
    if (!lock) return take_without_locks(made, other);
    lock_ = std::move(*lock);
    held_ = true;
    if (!another || !is_alive(*other)) sign();
    return true;
  }

  // Makes the lock file; false if it existed.
  bool make_file() {
    if (ops_.create_new(asked_.file) != nullptr) return true;
    const PathKind kind = ops_.kind_of_name(asked_.file);
    if (kind == PathKind::file || kind == PathKind::absent) return false;
    refuse_foreign();
  }

  // Without kernel locks the file is the lock: its maker has it until the process that it names is gone.
  bool take_without_locks(bool made, const std::optional<LockOwner>& other) {
    if (asked_.owner.mode == LockMode::shared) {
      if (made) ops_.remove(asked_.file);
      return true;
    }
    if (!made && !other) return false;  // its maker is about to sign it
    if (!made && !same_process(*other, asked_.owner)) {
      // If two processes find the owner dead, only one of them can rename its file.
      const Path dead = fmt::format("{}.{}", asked_.file.string(), asked_.owner.pid);
      ops_.rename(asked_.file, dead);
      const bool is_it = lock_owner_of_text(read_file(ops_, dead)) == other;
      if (is_it) ops_.remove(dead);
      if (!is_it) ops_.rename(dead, asked_.file);
      return false;
    }
    held_ = true;
    sign();
    asked_.warn(
        "the file system has no locks: a file, .lock, keeps other runs out of what is saved, and what a "
        "killed run leaves of other files (.NAME.tmp-0) stays");
    return true;
  }

  [[nodiscard]] bool stands_still(const LockOwner& other) const {
    constexpr int kBeats = 10;
    asked_.warn(fmt::format("{} was in use by process {} on {}: ten seconds show whether it still is",
                            asked_.what, other.pid, other.host));
    const std::string before = read_file(ops_, asked_.file);
    for (int i = 0; i < kBeats; ++i) {
      std::this_thread::sleep_for(asked_.beat);
      if (ops_.kind(asked_.file) != PathKind::file || read_file(ops_, asked_.file) != before) return false;
    }
    return true;
  }

  // Writes the owner in place, because the lock is on this very file.
  void sign() {
    try {
      const auto file = ops_.create(asked_.file);
      file->append(as_bytes(text_of(asked_.owner)));
      beats_ = std::jthread([this, end = ends_.get_future()] {
        for (std::int64_t i = 1; end.wait_for(asked_.beat) == std::future_status::timeout; ++i) beat(i);
      });
    } catch (const InputError&) {
      if (asked_.owner.mode == LockMode::exclusive) throw;  // for a shared lock, the kernel lock is enough
    }
  }

  // Writes the counter in place, so that nobody finds the file empty.
  void beat(std::int64_t count) {
    try {
      if (named() == asked_.owner)
        ops_.open_write(asked_.file)
            ->write_at(as_bytes(fmt::format("{}{}\n", text_of(asked_.owner), count)), Bytes(0));
    } catch (const InputError&) {  // tried again at the next beat
    }
  }

  void release() {
    // The last of those that share the lock removes the file.
    if (asked_.owner.mode == LockMode::shared) {
      lock_.reset();
      lock_ = ops_.try_lock(asked_.file, LockMode::exclusive);
      if (lock_ == nullptr) return;
    } else if (named() != asked_.owner) {
      return;  // somebody took the lock over, which can happen without kernel locks
    }
    ops_.remove(asked_.file);
  }

  // The owner named in the file; nullopt if nobody has signed yet. Any other content was not written by a
  // run, perhaps under another name (a hard link), and is refused.
  [[nodiscard]] std::optional<LockOwner> named() const {
    constexpr std::size_t kMost = 1024;
    std::string text;
    try {
      text = head_of(*ops_.open_read(asked_.file), kMost);
    } catch (const InputError&) {  // just removed, or unreadable
      return std::nullopt;
    }
    std::optional<LockOwner> owner = lock_owner_of_text(text);
    if (!owner && !text.empty()) refuse_foreign();
    return owner;
  }

  [[noreturn]] void refuse() const {
    const std::optional<LockOwner> other = named();
    const std::string who =
        other ? fmt::format("process {} on {} {}", other->pid, other->host,
                            other->mode == LockMode::exclusive ? "writes there" : "goes on from there")
              : fmt::format("another process holds {}", asked_.file.string());
    throw InputError(ExitCode::usage, asked_.where, fmt::format("{} is in use: {}", asked_.what, who),
                     asked_.fix);
  }

  [[noreturn]] void refuse_foreign() const {
    throw InputError(ExitCode::usage, asked_.file.string(),
                     "says who writes there, and is not a file of such a run", "remove it");
  }

  FileOps& ops_;
  const Asked asked_;
  std::unique_ptr<FileLock> lock_;
  bool held_ = false, made_dir_ = false;
  std::promise<void> ends_;
  std::jthread beats_;
};

RunLock::RunLock(FileOps& ops, Asked asked) : impl_(std::make_unique<Impl>(ops, std::move(asked))) {}
RunLock::~RunLock() = default;

}  // namespace sc
