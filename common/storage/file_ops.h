// Everything that this program does to files that matter goes through here, so that tests can count, fail or
// cut short each call (hooked_file_ops.h).
// No torch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/check.h"
#include "common/base/types.h"

namespace sc {

using Path = std::filesystem::path;

/// What stands at a path. `link` is said by kind_of_name() alone; kind() follows symbolic links, and one that
/// leads nowhere is `absent` to it, one that leads in a circle `other`.
enum class PathKind { absent, file, directory, other, link };

/// One open file. Destruction closes it and reports nothing: what must survive is synced before.
class File {
 public:
  virtual ~File() = default;
  /// All of `bytes`, or an error. Past the end of the file the gap is zeros.
  virtual void write_at(std::span<const std::byte> bytes, Bytes offset) = 0;
  /// All of `bytes` at the end of the file.
  virtual void append(std::span<const std::byte> bytes) = 0;
  /// Fills `bytes` as far as the file goes; returns how many bytes that was.
  virtual Bytes read_at(std::span<std::byte> bytes, Bytes offset) = 0;
  /// Returns when data and length are on the device (fsync). The file's *name* needs FileOps::sync_dir.
  virtual void sync() = 0;
  [[nodiscard]] virtual Bytes size() = 0;
  [[nodiscard]] virtual const Path& path() const = 0;

  // What BlockIo needs (block_io.h).
  /// One system call: bytes moved (perhaps fewer than asked; 0 at the file's end), or -errno.
  virtual std::int64_t write_some(std::span<const std::byte> bytes, Bytes offset) = 0;
  virtual std::int64_t read_some(std::span<std::byte> bytes, Bytes offset) = 0;
  /// Room on the device for the file's first `size` bytes. Nothing happens where the file system cannot
  /// promise that. InputError (exit 73) where there is no such room, or the user's limit (ulimit -f) is
  /// lower.
  virtual void allocate(Bytes size) = 0;
  /// From now on transfers go past the page cache (O_DIRECT), or through it. While they go past it, memory,
  /// offset and size are multiples of 4096. False: refused here, or the file lies in memory anyway (tmpfs).
  virtual bool set_direct(bool direct) = 0;
  /// Another handle on the same open file, for another thread.
  virtual std::unique_ptr<File> again() = 0;
  [[nodiscard]] virtual int descriptor() const = 0;
};

/// One open directory. Names are looked up in it, whatever its path names by now, and no symbolic link is
/// followed:
/// what is done here happens nowhere else.
///   Errors  InputError (exit 73).
class Directory {
 public:
  virtual ~Directory() = default;
  /// Names in it, without "." and "..", in ascending order.
  [[nodiscard]] virtual std::vector<std::string> list() = 0;
  /// A directory in it; null if `name` is none (a link to one is none).
  virtual std::unique_ptr<Directory> open(const std::string& name) = 0;
  /// A file, a link (not what it leads to), a pipe, or an empty directory. Nothing happens if it is absent.
  virtual void remove(const std::string& name) = 0;
  [[nodiscard]] virtual const Path& path() const = 0;
};

/// Bytes after which whoever writes much syncs: a slow disk then moves for all to see, and the last sync is
/// short.
inline constexpr std::int64_t kSyncEvery = 64'000'000;

/// What a file is looked at or opened for.
enum class FileIntent { read, write };

/// Whether a lock may be shared with others that share it.
enum class LockMode { exclusive, shared };

/// What a file system still takes.
struct FreeSpace {
  Bytes bytes;
  std::int64_t files;  // and directories; the largest number there is where nobody knows
};

/// A held lock; destruction (or the death of the process) releases it.
class FileLock {
 public:
  virtual ~FileLock() = default;
};

/// Files and directories of one machine.
///   Errors   InputError with the path, the call, the system's text and a fix: exit 73 where something was to
///            be written, 65 where something was to be read, 69 where the file system lacks the feature.
///            Files are regular ones: a pipe, a device or a socket is refused, and no call waits for another
///            process.
///   Threads  any number; two threads share no File.
class FileOps {
 public:
  virtual ~FileOps() = default;
  /// A file open for writing and reading; what was there is emptied, but a symbolic link is not followed.
  virtual std::unique_ptr<File> create(const Path& path) = 0;
  /// The same, but null if something is there already, a link that leads nowhere included.
  virtual std::unique_ptr<File> create_new(const Path& path) = 0;
  /// A file that has no name, in `path`'s directory: it vanishes with its last handle, so also with a process
  /// that is killed. `path` is what errors show. Null where the file system has no such files (O_TMPFILE);
  /// atomic_dir.h has one for all.
  virtual std::unique_ptr<File> create_unnamed(const Path& path) = 0;
  /// An existing file, open for writing and reading; its content stays.
  virtual std::unique_ptr<File> open_write(const Path& path) = 0;
  virtual std::unique_ptr<File> open_read(const Path& path) = 0;
  /// Returns when the names in directory `path` (created, renamed, removed) are on the device.
  virtual void sync_dir(const Path& path) = 0;
  /// `from` takes the name `to` in one step; a file at `to` is replaced, a directory there must be empty.
  virtual void rename(const Path& from, const Path& to) = 0;
  /// The same, but false, and nothing has changed, if something bears the name `to`.
  virtual bool rename_new(const Path& from, const Path& to) = 0;
  /// Two existing paths swap their names in one step (Linux; exit 69 where the file system cannot).
  virtual void exchange(const Path& a, const Path& b) = 0;
  /// A file, a symbolic link or an empty directory.
  virtual void remove(const Path& path) = 0;
  /// Null if `path` is no directory (after links have been followed) or absent.
  virtual std::unique_ptr<Directory> open_dir(const Path& path) = 0;
  /// False if a directory is there already. The parent must exist: see make_dirs().
  virtual bool make_dir(const Path& path) = 0;
  /// Null if somebody else (another process, or another call in this one) holds it, or `path` is no file or
  /// directory: a symbolic link is not followed. Exit 69 where the file system has no locks.
  virtual std::unique_ptr<FileLock> try_lock(const Path& path, LockMode mode) = 0;
  /// intent: what comes next there; exit 65 or 73 where this user may not look (a directory without its x).
  [[nodiscard]] virtual PathKind kind(const Path& path, FileIntent intent) = 0;
  [[nodiscard]] PathKind kind(const Path& path) { return kind(path, FileIntent::read); }
  /// What bears this name itself: a symbolic link is a `link`.
  [[nodiscard]] virtual PathKind kind_of_name(const Path& path, FileIntent intent) = 0;
  [[nodiscard]] PathKind kind_of_name(const Path& path) { return kind_of_name(path, FileIntent::write); }
  /// Whether what bears this name (itself) belongs to the user of this process.
  [[nodiscard]] virtual bool is_own(const Path& path) = 0;
  [[nodiscard]] virtual Bytes size(const Path& path) = 0;
  /// Names in a directory, without "." and "..", in ascending order.
  [[nodiscard]] virtual std::vector<std::string> list(const Path& path) = 0;
  /// Of this user, on the file system that holds `path`.
  [[nodiscard]] virtual FreeSpace free_space(const Path& path) = 0;
};

/// Whether sync and sync_dir reach the device. `skip` is for tests that model durability themselves.
enum class Syncing { device, skip };
/// The real thing: POSIX calls, partial transfers and EINTR continued.
std::unique_ptr<FileOps> posix_file_ops(Syncing syncing = Syncing::device);

/// Creates `path` and its missing parents, each name synced.
void make_dirs(FileOps& ops, const Path& path);
/// Removes a file, or a directory with all below it; nothing happens if it is absent. Symbolic links are
/// removed, never followed, whatever other processes rename meanwhile. Not atomic.
void remove_tree(FileOps& ops, const Path& path);
/// FileOps::try_lock; nothing where the file system has no locks.
std::optional<std::unique_ptr<FileLock>> try_lock_if_any(FileOps& ops, const Path& path,
                                                         LockMode mode = LockMode::exclusive);
/// That the user's limit (ulimit -f) allows a file of that size.
///   Errors  InputError (exit 73).
void require_size_allowed(const Path& path, Bytes size);
/// A file that nobody has made yet.
///   Errors  InputError (exit 73) also where something has that name.
std::unique_ptr<File> create_only(FileOps& ops, const Path& path);
/// The whole file.
std::string read_file(FileOps& ops, const Path& path);
/// `path`'s directory, "." if it names none.
Path parent_of(const Path& path);

/// "No space left on device (ENOSPC)".
std::string errno_text(int error);
/// What the system refused, as every FileOps reports it: "cannot <action>: <errno_text>".
InputError file_error(FileIntent intent, const Path& path, const std::string& action, int error);
/// What is refused of a pipe, a device or a socket: exit 65 or 73.
InputError not_regular(FileIntent intent, const Path& path);

inline std::span<const std::byte> as_bytes(std::string_view text) {
  return std::as_bytes(std::span<const char>(text.data(), text.size()));
}

}  // namespace sc
