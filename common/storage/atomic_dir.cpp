#include "common/storage/atomic_dir.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace sc {
namespace {

std::string temporary_prefix(const Path& target) {
  return fmt::format(".{}.tmp-", target.filename().string());
}

struct Temporary {
  Path path;
  std::unique_ptr<FileLock> lock;
  std::unique_ptr<File> file = {};  // undefined for a directory
};

/// Whether make_temporary() gives such a name to a target with that prefix.
bool is_temporary(std::string_view name, std::string_view prefix) {
  if (!name.starts_with(prefix) || name.size() == prefix.size()) return false;
  return std::ranges::all_of(name.substr(prefix.size()), [](char c) { return c >= '0' && c <= '9'; });
}

void remove_leftovers(FileOps& ops, const Path& target, Leftover kind, FileNames names) {
  const std::string prefix = temporary_prefix(target);
  const auto parent = ops.open_dir(parent_of(target));
  for (const std::string& name : parent ? parent->list() : std::vector<std::string>()) {
    if (is_temporary(name, prefix)) remove_leftover(ops, parent_of(target) / name, kind, names);
  }
}

/// Makes a new, locked name next to `target`. `make` creates it, and returns false if the name is taken.
Temporary make_temporary(FileOps& ops, const Path& target, const std::function<bool(const Path&)>& make) {
  for (std::int64_t k = 0;; ++k) {
    Path path = parent_of(target) / fmt::format("{}{}", temporary_prefix(target), k);
    if (!make(path)) continue;
    // If the lock is taken, another writer took the name for a leftover in the moment between, and removes
    // it; the next name is tried.
    auto lock = try_lock_if_any(ops, path);
    if (!lock || *lock != nullptr) return {std::move(path), lock ? std::move(*lock) : nullptr};
  }
}

/// Undoes a failed attempt. What cannot be removed now, the next writer removes as a leftover.
void discard(FileOps& ops, const Path& temporary) noexcept {
  try {
    remove_tree(ops, temporary);
  } catch (...) {  // the error that led here is the one to report
  }
}

}  // namespace

void remove_leftover(FileOps& ops, const Path& path, Leftover kind, FileNames names) {
  const PathKind expected = kind == Leftover::file ? PathKind::file : PathKind::directory;
  if (ops.kind_of_name(path) != expected || !ops.is_own(path)) return;
  const auto lock = try_lock_if_any(ops, path);
  if (lock ? *lock == nullptr : kind == Leftover::file) return;
  if (kind == Leftover::directory) {
    for (const std::string& name : ops.list(path)) {
      if (!names(name) || ops.kind_of_name(path / name) != PathKind::file) return;
    }
  }
  remove_tree(ops, path);
}

void require_replaceable(FileOps& ops, const Path& path) {
  switch (ops.kind_of_name(path)) {
    case PathKind::absent:
    case PathKind::file:
      return;
    case PathKind::link:
      throw InputError(ExitCode::usage, path.string(), "is a symbolic link, and would be replaced",
                       "give the path of the file that it leads to, or remove the link");
    case PathKind::directory:
      throw InputError(ExitCode::cannot_write, path.string(), "is a directory, and a file is to be written",
                       "give the path of a file");
    case PathKind::other:
      throw not_regular(FileIntent::write, path);
  }
}

void write_synced_file(FileOps& ops, const Path& path, const std::function<void(File&)>& fill) {
  const auto file = create_only(ops, path);
  fill(*file);
  file->sync();
}

namespace {

Temporary make_temporary_file(FileOps& ops, const Path& target) {
  remove_leftovers(ops, target, Leftover::file, any_name);
  std::unique_ptr<File> file;
  Temporary made = make_temporary(ops, target, [&](const Path& name) {
    file = ops.create_new(name);
    return file != nullptr;
  });
  made.file = std::move(file);
  return made;
}

/// Writes a file and gives it its name. False if the name exists; with `replace` it is replaced.
bool write_and_name(FileOps& ops, const Path& path, const std::function<void(File&)>& fill, bool replace) {
  make_dirs(ops, path.parent_path());
  Temporary temporary = make_temporary_file(ops, path);
  bool named = true;
  try {
    fill(*temporary.file);
    temporary.file->sync();
    temporary.file.reset();
    if (replace)
      ops.rename(temporary.path, path);
    else
      named = ops.rename_new(temporary.path, path);
  } catch (...) {
    discard(ops, temporary.path);
    throw;
  }
  if (named)
    ops.sync_dir(parent_of(path));
  else
    discard(ops, temporary.path);
  return named;
}

}  // namespace

void atomic_write_file(FileOps& ops, const Path& path, const std::function<void(File&)>& fill) {
  require_replaceable(ops, path);
  write_and_name(ops, path, fill, /*replace=*/true);
}

bool atomic_write_new(FileOps& ops, const Path& path, std::string_view content) {
  return write_and_name(
      ops, path, [&](File& file) { file.append(as_bytes(content)); }, /*replace=*/false);
}

void atomic_write_file(FileOps& ops, const Path& path, std::string_view content) {
  atomic_write_file(ops, path, [&](File& file) { file.append(as_bytes(content)); });
}

std::unique_ptr<File> create_unnamed(FileOps& ops, const Path& path) {
  if (std::unique_ptr<File> file = ops.create_unnamed(path)) return file;
  Temporary temporary = make_temporary_file(ops, path);
  ops.remove(temporary.path);
  return std::move(temporary.file);
}

AtomicDir::AtomicDir(FileOps& ops, Path target, Existing existing, FileNames names)
    : ops_(ops), target_(std::move(target)), existing_(existing), names_(names) {
  const PathKind kind = ops_.kind(target_, FileIntent::write);
  const bool taken = ops_.kind_of_name(target_) != PathKind::absent;  // also by a link that leads nowhere
  if (taken && existing_ == Existing::refuse) {
    throw InputError(ExitCode::cannot_write, target_.string(), "is there already and would be overwritten",
                     "name another directory or remove this one");
  }
  if (taken && kind != PathKind::directory) {
    throw InputError(ExitCode::cannot_write, target_.string(),
                     "is not a directory, so none can take its place",
                     "name another directory or remove this file");
  }
  make_dirs(ops_, target_.parent_path());
  remove_leftovers(ops_, target_, Leftover::directory, names);
  Temporary temporary = make_temporary(ops_, target_, [&](const Path& name) {
    return ops_.kind_of_name(name) == PathKind::absent && ops_.make_dir(name);
  });
  temporary_ = std::move(temporary.path);
  lock_ = std::move(temporary.lock);
}

AtomicDir::~AtomicDir() {
  if (!committed_) discard(ops_, temporary_);
}

void AtomicDir::write_file(const std::string& name, const std::function<void(File&)>& fill) {
  if (committed_) throw std::logic_error("AtomicDir: write_file after commit");
  write_synced_file(ops_, temporary_ / name, fill);
}

void AtomicDir::commit() {
  if (committed_) throw std::logic_error("AtomicDir: committed twice");
  ops_.sync_dir(temporary_);
  const bool replaces = existing_ == Existing::replace && ops_.kind(target_) == PathKind::directory;
  if (replaces) {
    ops_.exchange(temporary_, target_);
  } else {
    ops_.rename(temporary_, target_);
  }
  committed_ = true;
  ops_.sync_dir(parent_of(target_));
  if (replaces) discard_old();
}

// Removes what the target was before. Never fails, because the new content is already safe.
void AtomicDir::discard_old() noexcept {
  try {
    // If the name is a link, its target does not belong to this directory.
    const bool linked = ops_.kind_of_name(temporary_) == PathKind::link;
    for (const std::string& name : linked ? std::vector<std::string>() : ops_.list(temporary_)) {
      const bool own = names_(name) && ops_.kind_of_name(temporary_ / name) == PathKind::file;
      if (!own && !ops_.rename_new(temporary_ / name, target_ / name)) return;
    }
    ops_.sync_dir(target_);
  } catch (...) {  // it stays, and remove_leftover() leaves such a directory alone
    return;
  }
  discard(ops_, temporary_);
}

}  // namespace sc
