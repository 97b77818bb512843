#include "common/storage/hold.h"

#include <spdlog/fmt/fmt.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <fstream>
#include <sstream>
#include <thread>

namespace sc {
namespace {

std::string this_host() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
}

/// When it started, in ticks since the boot; nothing if no such process runs (or it only waits to be collected).
std::optional<std::int64_t> start_of(std::int64_t pid) {
  constexpr int kState = 3, kStart = 22;  // proc(5), counted from 1; the name, the second, may hold anything
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

bool is_alive(const Holder& holder) {
  return holder.host == this_host() && start_of(holder.pid) == holder.started;
}

bool same_process(const Holder& a, const Holder& b) {
  return a.pid == b.pid && a.started == b.started && a.host == b.host;
}

}  // namespace

Holder this_holder(const char* named) {
  Holder holder;
  std::istringstream in(named == nullptr ? "" : named);
  if (in >> holder.pid >> holder.started >> holder.host && is_alive(holder)) return holder;
  return {.pid = ::getpid(), .started = start_of(::getpid()).value_or(0), .host = this_host()};
}

std::string text_of(const Holder& holder) {
  return fmt::format("{} by process {} started {} on {}\n",
                     holder.mode == LockMode::exclusive ? "written" : "read", holder.pid, holder.started,
                     holder.host);
}

std::optional<Holder> holder_of_text(const std::string& text) {
  Holder holder;
  std::string mode, word;
  std::istringstream in(text);
  if (!(in >> mode >> word >> word >> holder.pid >> word >> holder.started >> word >> holder.host))
    return std::nullopt;
  holder.mode = mode == "read" ? LockMode::shared : LockMode::exclusive;
  return text_of(holder) == text ? std::optional(holder) : std::nullopt;
}

Hold::Hold(FileOps& ops, Asked asked) : ops_(ops), asked_(std::move(asked)) {
  using namespace std::chrono_literals;
  const Path dir = parent_of(asked_.file);
  if (asked_.holder.mode == LockMode::exclusive) {
    made_dir_ = ops_.kind(dir) == PathKind::absent;
    make_dirs(ops_, dir);
  } else if (ops_.kind(dir) != PathKind::directory) {
    return;  // nothing is there to be read
  }
  // Somebody may be about to sign, or about to leave: what stands in the file is looked at for a moment.
  constexpr int kTries = 40;
  for (int i = 0; i < kTries; ++i) {
    if (take()) return;
    std::this_thread::sleep_for(25ms);
  }
  refuse();
}

Hold::~Hold() {
  try {
    if (held_) release();
    if (made_dir_ && ops_.list(parent_of(asked_.file)).empty()) ops_.remove(parent_of(asked_.file));
  } catch (...) {  // what is left is nobody's as soon as this process has ended
  }
}

// One try. False: try again. Refuses where a living process is named.
bool Hold::take() {
  const bool shared = asked_.holder.mode == LockMode::shared;
  bool made = false;
  try {
    made = make_file();
  } catch (const InputError&) {
    if (!shared || ops_.kind_of_name(asked_.file) != PathKind::absent) throw;
    return true;  // nobody like this user writes here
  }
  try {
    lock_ = ops_.try_lock(asked_.file, asked_.holder.mode);
  } catch (const InputError& error) {
    if (error.code() != ExitCode::missing) throw;
    return take_without_locks(made);
  }
  const std::optional<Holder> other = named();
  const bool lives = other && !same_process(*other, asked_.holder) && is_alive(*other);
  // Whoever starts runs in turn has no lock between them, but is named.
  if (lives && (lock_ == nullptr || other->mode == LockMode::exclusive)) refuse();
  if (lock_ == nullptr) return false;
  held_ = true;
  if (!lives) sign();
  return true;
}

// Whether it was not there before.
bool Hold::make_file() {
  if (ops_.create_new(asked_.file) != nullptr) return true;
  const PathKind kind = ops_.kind_of_name(asked_.file);
  if (kind == PathKind::file || kind == PathKind::absent) return false;
  refuse_foreign();
}

// The file is the hold: who made it has it, until the process that it names is gone.
bool Hold::take_without_locks(bool made) {
  const bool shared = asked_.holder.mode == LockMode::shared;
  const std::optional<Holder> other = made ? std::nullopt : named();
  if (other && !same_process(*other, asked_.holder) && (is_alive(*other) || other->host != this_host()))
    refuse();
  if (shared) {
    if (made) ops_.remove(asked_.file);
    return true;
  }
  if (!made && !other) return false;  // its maker is about to sign
  if (!made && !same_process(*other, asked_.holder)) {
    // Of two that find it dead one moves it away.
    const Path dead = fmt::format("{}.{}", asked_.file.string(), asked_.holder.pid);
    ops_.rename(asked_.file, dead);
    const bool is_it = holder_of_text(read_file(ops_, dead)) == other;
    if (is_it) ops_.remove(dead);
    if (!is_it) ops_.rename(dead, asked_.file);
    return false;
  }
  held_ = true;
  sign();
  warning_ = fmt::format(
      "the file system of {} has no locks: {} keeps a second run on this host out; of one on another host it "
      "names "
      "the process",
      asked_.what, asked_.file.string());
  return true;
}

// The lock is on the file as it is, so it is written in place.
void Hold::sign() {
  try {
    const auto file = ops_.create(asked_.file);
    file->append(as_bytes(text_of(asked_.holder)));
  } catch (const InputError&) {
    if (asked_.holder.mode == LockMode::exclusive) throw;  // of one that only reads the lock is enough
  }
}

void Hold::release() {
  // Of those that share it the last one removes it.
  if (asked_.holder.mode == LockMode::shared) {
    lock_.reset();
    lock_ = ops_.try_lock(asked_.file);
    if (lock_ == nullptr) return;
  } else if (named() != asked_.holder) {
    return;  // without locks: taken over
  }
  ops_.remove(asked_.file);
}

void Hold::refuse_foreign() const {
  throw InputError(ExitCode::usage, asked_.file.string(),
                   "says who writes there, and is not a file of such a run", "remove it");
}

// Empty: nobody yet. Anything else was not written by a run, perhaps under another name, too (a hard link).
std::optional<Holder> Hold::named() const {
  constexpr std::size_t kMost = 1024;
  std::string text(kMost, '\0');
  try {
    const auto file = ops_.open_read(asked_.file);
    text.resize(
        static_cast<std::size_t>(file->read_at(std::as_writable_bytes(std::span(text)), Bytes(0)).value()));
  } catch (const InputError&) {  // just removed, or unreadable
    return std::nullopt;
  }
  std::optional<Holder> holder = holder_of_text(text);
  if (!holder && !text.empty()) refuse_foreign();
  return holder;
}

void Hold::refuse() const {
  const std::optional<Holder> other = named();
  const std::string who =
      other ? fmt::format("process {} on {} {}", other->pid, other->host,
                          other->mode == LockMode::exclusive ? "writes there" : "goes on from there")
            : fmt::format("another process holds {}", asked_.file.string());
  throw InputError(ExitCode::usage, asked_.where, fmt::format("{} is in use: {}", asked_.what, who),
                   asked_.fix);
}

}  // namespace sc
