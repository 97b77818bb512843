// All file operations that matter go through here, so that tests can count them, make them fail or cut them
// short (hooked_file_ops.h). No torch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/base/handle.h"
#include "common/base/types.h"

namespace sc {

using Path = std::filesystem::path;

/// The kind of thing at a path. Only kind_of_name() returns `link`. kind() follows symbolic links; for a link
/// that leads nowhere it returns `absent`, for one that leads in a circle `other`.
enum class PathKind { absent, file, directory, other, link };

/// The bytes after which writers of much data sync: a slow disk then shows its speed early, and the last sync
/// is short.
inline constexpr std::int64_t kSyncEvery = 64'000'000;

/// What a file is inspected or opened for, which decides the exit code of errors.
enum class FileIntent { read, write };

/// Whether other processes may share a lock.
enum class LockMode { exclusive, shared };

/// Whether sync and sync_dir reach the device. Tests that model durability themselves use `skip`.
enum class Syncing { device, skip };

struct FreeSpace {
  Bytes bytes;
  std::int64_t files;  // including directories; the largest number if unknown
};

struct Fd {
  int value = -1;
  bool operator==(const Fd&) const = default;
};
struct CloseFd {
  void operator()(Fd fd) const noexcept;
};
using UniqueFd = UniqueHandle<Fd, CloseFd>;

/// A held lock, released by destruction or by the death of the process.
struct FileLock {
  UniqueFd fd;
};

struct FileCall;
class FileOps;

/// One open file, whose FileOps must outlive it. The destructor closes it and reports nothing: call sync()
/// before it where data must survive.
class File {
 public:
  File(FileOps& ops, UniqueFd fd, Path path) : ops_(ops), fd_(std::move(fd)), path_(std::move(path)) {}
  /// Writes all of `bytes`, or throws. A gap after the old end of the file is filled with zeros.
  void write_at(std::span<const std::byte> bytes, Bytes offset);
  /// Writes all of `bytes` at the end of the file, or throws.
  void append(std::span<const std::byte> bytes) { write_at(bytes, size()); }
  /// Fills `bytes` as far as the file goes; returns the number of bytes read.
  Bytes read_at(std::span<std::byte> bytes, Bytes offset);
  /// Returns when data and length are on the device (fsync). The file's *name* needs FileOps::sync_dir.
  void sync();
  [[nodiscard]] Bytes size();
  [[nodiscard]] const Path& path() const { return path_; }

  // For BlockIo (block_io.h): one system call without hooks. Returns the bytes moved, perhaps fewer than
  // asked or 0 at the file's end, or -errno.
  std::int64_t write_some(std::span<const std::byte> bytes, Bytes offset) const;
  std::int64_t read_some(std::span<std::byte> bytes, Bytes offset) const;
  /// Reserves space on the device for the file's first `size` bytes, if the file system can.
  ///   Errors  InputError (exit 73) if there is no space, or the user's limit (ulimit -f) is lower.
  void allocate(Bytes size);
  /// Makes transfers go past the page cache (O_DIRECT), or through it. Past it, memory, offset and size must
  /// be multiples of 4096. False if this is refused, or if the file lies in memory anyway (tmpfs).
  bool set_direct(bool direct) const;
  /// Another handle on the same open file, for another thread.
  std::unique_ptr<File> again();
  [[nodiscard]] int descriptor() const { return fd_.get().value; }

 private:
  FileOps& ops_;
  UniqueFd fd_;
  Path path_;
};

/// One open directory, whose FileOps must outlive it. Names are looked up in it, whatever its path names in
/// the meantime, and symbolic links are not followed, so that operations cannot affect any other place.
///   Errors  InputError (exit 73).
class Directory {
 public:
  Directory(FileOps& ops, UniqueFd fd, Path path) : ops_(ops), fd_(std::move(fd)), path_(std::move(path)) {}
  /// The names in the directory, without "." and "..", in ascending order.
  [[nodiscard]] std::vector<std::string> list() const;
  /// Opens a directory in this one; null if `name` is not a directory (or is a link to one).
  std::unique_ptr<Directory> open(const std::string& name);
  /// Removes a file, a link (not its target), a pipe, or an empty directory. Does nothing if it is absent.
  void remove(const std::string& name);

 private:
  [[nodiscard]] int descriptor() const { return fd_.get().value; }
  [[nodiscard]] UniqueFd open_here(const std::string& name, int flags) const;

  FileOps& ops_;
  UniqueFd fd_;
  Path path_;
};

/// Files and directories of one machine, by POSIX calls; partial transfers and EINTR are continued.
///   Errors   InputError with the path, the call, the system's text and a fix: exit 73 if something was to be
///            written, 65 if something was to be read, 69 if the file system lacks the feature. Files are
///            regular ones: a pipe, a device or a socket is refused, and no call waits for another process.
///   Threads  any number; two threads must not share a File.
///   Hooks    hooked_file_ops.h. Virtual functions are what tests change besides.
class FileOps {
 public:
  explicit FileOps(Syncing syncing) : syncing_(syncing) {}
  virtual ~FileOps() = default;
  FileOps(const FileOps&) = delete;
  FileOps& operator=(const FileOps&) = delete;
  /// Opens a file for writing and reading. An existing file is emptied; a symbolic link is not followed.
  std::unique_ptr<File> create(const Path& path);
  /// Does what create() does, but returns null if the name exists, even as a link that leads nowhere.
  std::unique_ptr<File> create_new(const Path& path);
  /// A file without a name in `path`'s directory. It vanishes with its last handle, so also with a killed
  /// process. Errors show `path`. Null if the file system has no such files (O_TMPFILE); atomic_dir.h has a
  /// version for all file systems.
  virtual std::unique_ptr<File> create_unnamed(const Path& path);
  /// Opens an existing file for writing and reading; its content stays.
  std::unique_ptr<File> open_write(const Path& path);
  std::unique_ptr<File> open_read(const Path& path);
  /// Returns when the names in directory `path` (created, renamed, removed) are on the device.
  void sync_dir(const Path& path);
  /// Renames `from` to `to` in one step. A file at `to` is replaced; a directory there must be empty.
  void rename(const Path& from, const Path& to);
  /// Does what rename() does, but returns false, with nothing changed, if the name `to` exists.
  bool rename_new(const Path& from, const Path& to);
  /// Swaps the names of two existing paths in one step (Linux; exit 69 if the file system cannot).
  void exchange(const Path& a, const Path& b);
  /// Removes a file, a symbolic link or an empty directory.
  void remove(const Path& path);
  /// Opens a directory, following links. Null if `path` is absent or not a directory.
  std::unique_ptr<Directory> open_dir(const Path& path);
  /// Makes a directory, whose parent must exist; false if it exists already.
  bool make_dir(const Path& path);
  /// Takes a lock. Null if it is held elsewhere (in another process, or by another call in this one), or if
  /// `path` is not a file or directory; a symbolic link is not followed. Exit 69 if the file system has no
  /// locks.
  virtual std::unique_ptr<FileLock> try_lock(const Path& path, LockMode mode);
  /// The kind of thing at `path`. If this user may not look there (a directory without its x permission),
  /// exit 65 or 73 by `intent`, which says what comes next.
  [[nodiscard]] PathKind kind(const Path& path, FileIntent intent = FileIntent::read);
  /// The kind of thing that has this name: a symbolic link is a `link`.
  [[nodiscard]] PathKind kind_of_name(const Path& path, FileIntent intent = FileIntent::write);
  /// Whether what has this name (a link itself) belongs to this process's user.
  [[nodiscard]] bool is_own(const Path& path);
  [[nodiscard]] Bytes size(const Path& path);
  /// The names in a directory, without "." and "..", in ascending order.
  [[nodiscard]] std::vector<std::string> list(const Path& path);
  /// The space free to this user on the file system that holds `path`.
  [[nodiscard]] virtual FreeSpace free_space(const Path& path);

 protected:
  /// Puts hooks around the calls of `inner`, which must outlive this object.
  explicit FileOps(FileOps* inner) : inner_(inner), syncing_(inner->syncing_) {}
  [[nodiscard]] FileOps& inner() const { return *inner_; }
  /// Called before each operation. If it throws, the operation does not take place.
  virtual void before(const FileCall& call) {}
  /// Called after each successful operation. `changed` is false if it returned false or null because the name
  /// existed.
  virtual void after(const FileCall& call, bool changed) {}

 private:
  friend class File;
  friend class Directory;
  template <class Act>
  auto hooked(const FileCall& call, Act act);
  void tell_after(const FileCall& call, bool changed);
  /// Opens the file `at`, but calls it `path` in errors. Null if the system call fails with a code in `none`.
  std::unique_ptr<File> open(const Path& at, const Path& path, int flags, FileIntent intent,
                             const char* action, std::initializer_list<int> none = {});

  FileOps* inner_ = nullptr;
  Syncing syncing_;
};

std::unique_ptr<FileOps> posix_file_ops(Syncing syncing = Syncing::device);

/// Creates `path` and its missing parents, and syncs each name.
void make_dirs(FileOps& ops, const Path& path);
/// Removes a file, or a directory with everything in it; does nothing if it is absent. Symbolic links are
/// removed, never followed, even if other processes rename things at the same time. Not atomic.
void remove_tree(FileOps& ops, const Path& path);
/// Does what FileOps::try_lock does; nullopt if the file system has no locks.
std::optional<std::unique_ptr<FileLock>> try_lock_if_any(FileOps& ops, const Path& path,
                                                         LockMode mode = LockMode::exclusive);
/// Checks that the user's limit (ulimit -f) allows a file of that size.
///   Errors  InputError (exit 73).
void require_size_allowed(const Path& path, Bytes size);
/// Creates a new file.
///   Errors  InputError (exit 73), also if the name exists.
std::unique_ptr<File> create_only(FileOps& ops, const Path& path);
/// The file's first `most` bytes, or all of a shorter file.
std::string head_of(File& file, std::size_t most);
std::string read_file(FileOps& ops, const Path& path);
/// The directory of `path`, or "." if it names none.
Path parent_of(const Path& path);

/// A system error as text: "No space left on device (ENOSPC)".
std::string errno_text(int error);
/// The error for a refused system call: "cannot <action>: <errno_text>".
InputError file_error(FileIntent intent, const Path& path, const std::string& action, int error);
/// The error for a pipe, a device or a socket: exit 65 or 73.
InputError not_regular(FileIntent intent, const Path& path);

inline std::span<const std::byte> as_bytes(std::string_view text) {
  return std::as_bytes(std::span<const char>(text.data(), text.size()));
}

}  // namespace sc
