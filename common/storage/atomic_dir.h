// Files and directories that are either complete or absent, whenever the program or the machine stops. No
// torch.
//
// What is new is written under a temporary name beside its target (".<name>.tmp-<k>"), flushed to the device,
// and takes the target's name in one step; then the parent directory is flushed. A reader sees the old
// content or the whole new one, never a part. A temporary name is locked while its writer lives, so the next
// writer of the same target removes what crashed attempts left and nothing else: what somebody else owns,
// what is of another kind, and directories that hold more than such a writer puts there stay. Two writers of
// one target do not disturb each other: the later commit wins. Where the file system has no locks what
// crashed attempts left of a file stays, and of a directory goes: such a directory has one writer
// (run_lock.h).
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "common/storage/file_ops.h"

namespace sc {

/// Creates `path`, lets `fill` write it and returns when data is on the device; the name is not (sync_dir).
///   Errors  InputError (exit 73) also where something has that name.
void write_synced_file(FileOps& ops, const Path& path, const std::function<void(File&)>& fill);

/// One file: complete with `fill`'s content afterwards, or as it was before if anything throws (the last
/// step, sync_dir, aside: the new content stands then, but a power cut may undo it). A file at `path` is
/// replaced; missing parent directories are made.
///   Errors  require_replaceable()'s before anything is written, InputError (exit 73), or whatever `fill`
///           throws.
void atomic_write_file(FileOps& ops, const Path& path, const std::function<void(File&)>& fill);
void atomic_write_file(FileOps& ops, const Path& path, std::string_view content);
/// One file that nobody has written yet: of several writers one succeeds. False, and nothing has changed, if
/// something bears the name already.
///   Errors  InputError (exit 73).
bool atomic_write_new(FileOps& ops, const Path& path, std::string_view content);

/// That a file may take the name `path`: nothing has it, or a file.
///   Errors  InputError: a symbolic link (exit 64: to replace it, or what it leads to, may both be meant), or
///           a directory, a pipe, a device or a socket (exit 73).
void require_replaceable(FileOps& ops, const Path& path);

/// Says of a name whether the writers of a directory give it to a file there.
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
  /// What happens if the target is there already: refuse throws InputError (exit 73) at once. replace swaps
  /// old and new in one step and then removes the old one, but what is no file of these names moves into the
  /// new one; it needs a file system that can swap names (exit 69 at commit elsewhere).
  enum class Existing { refuse, replace };

  /// names: of the files that will be in it. A leftover that holds anything else is none.
  AtomicDir(FileOps& ops, Path target, Existing existing, FileNames names = any_name);
  ~AtomicDir();
  AtomicDir(const AtomicDir&) = delete;
  AtomicDir& operator=(const AtomicDir&) = delete;

  /// Where the files are until commit().
  [[nodiscard]] const Path& path() const { return temporary_; }
  /// A file directly in this directory, flushed to the device.
  void write_file(const std::string& name, const std::function<void(File&)>& fill);
  /// Flushes the directory, then gives it the target's name. Once.
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

/// A file without a name in `path`'s directory, open for writing and reading: it vanishes with its last
/// handle, so a killed run leaves nothing. Where the file system lacks such files it has a locked temporary
/// name for a moment. `path` is what errors show.
///   Errors  InputError (exit 73).
std::unique_ptr<File> create_unnamed(FileOps& ops, const Path& path);

/// What a temporary name belongs to.
enum class Leftover { file, directory };

/// Removes `path`, a temporary name, if a crashed writer left it: it is of that kind, this user's, not
/// locked, and a directory holds only regular files with such names.
void remove_leftover(FileOps& ops, const Path& path, Leftover kind, FileNames names = any_name);

}  // namespace sc
