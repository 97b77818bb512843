// Files and directories that are either complete or absent, whenever the program or the machine stops. No
// torch.
//
// New content is written under a temporary name next to its target (".<name>.tmp-<k>"), flushed to the
// device, and renamed to the target in one step; then the parent directory is flushed. A reader sees the old
// content or the whole new one, never a part. A temporary name is locked while its writer lives, so the next
// writer of the same target removes what crashed attempts left, and nothing else: it keeps what belongs to
// another user, what is of another kind, and directories that hold other files than such a writer makes. Two
// writers of one target do not disturb each other: the later commit wins. On a file system without locks a
// crashed attempt's file stays, but its directory is removed: such a directory has one writer (run_lock.h).
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "common/storage/file_ops.h"

namespace sc {

/// Creates `path`, lets `fill` write it, and returns when the data, but not the name, are on the device.
///   Errors  InputError (exit 73), also if the name exists.
void write_synced_file(FileOps& ops, const Path& path, const std::function<void(File&)>& fill);

/// Replaces or creates one file. Afterwards it has all of `fill`'s content, or, if anything throws, it is as
/// before (except in the last step, sync_dir: then the new content stands, but a power cut may undo it).
/// Missing parent directories are made.
///   Errors  those of require_replaceable() before anything is written, InputError (exit 73), or whatever
///           `fill` throws.
void atomic_write_file(FileOps& ops, const Path& path, const std::function<void(File&)>& fill);
void atomic_write_file(FileOps& ops, const Path& path, std::string_view content);
/// Creates one file, if none exists; of several writers one succeeds. False, with nothing changed, if the
/// name exists.
///   Errors  InputError (exit 73).
bool atomic_write_new(FileOps& ops, const Path& path, std::string_view content);

/// Checks that a file may take the name `path`: the name is free, or a file has it.
///   Errors  InputError: a symbolic link (exit 64: the user may want to replace the link or its target), or a
///           directory, a pipe, a device or a socket (exit 73).
///           directory, a pipe, a device or a socket (exit 73).
void require_replaceable(FileOps& ops, const Path& path);

/// A function that says whether the writers of a directory give this name to a file in it.
using FileNames = bool (*)(std::string_view name);
inline bool any_name(std::string_view) { return true; }

/// One directory of files.
///   AtomicDir out(ops, "runs/x/step_100", AtomicDir::Existing::refuse);
///   out.write_file("record.json", [&](File& file) { file.append(...); });
///   out.commit();                                     // without it the destructor removes everything
/// Several processes may fill one directory: one owns the AtomicDir and sends path() to the others, which
/// call write_synced_file(); after a barrier the owner commits.
class AtomicDir {
 public:
  /// What happens if the target exists. refuse: InputError (exit 73) at once. replace: commit() swaps old and
  /// new in one step and removes the old one, but first moves entries that are not files with these names
  /// into the new one. This needs a file system that can swap names (otherwise exit 69 at commit).
  enum class Existing { refuse, replace };

  /// `names` accepts the files that will be in the directory. A leftover that holds others is not removed.
  AtomicDir(FileOps& ops, Path target, Existing existing, FileNames names = any_name);
  ~AtomicDir();
  AtomicDir(const AtomicDir&) = delete;
  AtomicDir& operator=(const AtomicDir&) = delete;

  /// The temporary directory that holds the files until commit().
  [[nodiscard]] const Path& path() const { return temporary_; }
  /// Writes a file directly in this directory and flushes it to the device.
  void write_file(const std::string& name, const std::function<void(File&)>& fill);
  /// Flushes the directory, then gives it the target's name. Must be called once.
  void commit();

 private:
  void discard_old() noexcept;

  FileOps& ops_;
  Path target_, temporary_;
  Existing existing_;
  FileNames names_;
  std::unique_ptr<FileLock> lock_;
  bool committed_ = false;
};

/// A file without a name in `path`'s directory, open for writing and reading. It vanishes with its last
/// handle, so a killed run leaves nothing. On file systems without such files it has a locked temporary name
/// for a moment. Errors show `path`.
///   Errors  InputError (exit 73).
std::unique_ptr<File> create_unnamed(FileOps& ops, const Path& path);

enum class Leftover { file, directory };

/// Removes the temporary name `path` if a crashed writer left it: it is of that kind, belongs to this user,
/// is not locked, and a directory holds only regular files with such names.
void remove_leftover(FileOps& ops, const Path& path, Leftover kind, FileNames names = any_name);

}  // namespace sc
