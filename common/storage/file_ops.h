// Everything that this program does to files that matter goes through here, so that tests can count, fail or
// cut short each call (hooked_file_ops.h). No torch.
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

/// What stands at a path. `link` is said by kind_of_name() alone; kind() follows symbolic links, and one that
/// leads nowhere is `absent` to it, one that leads in a circle `other`.
enum class PathKind { absent, file, directory, other, link };

/// Bytes after which whoever writes much syncs: a slow disk then moves for all to see, and the last sync is
/// short.
inline constexpr std::int64_t kSyncEvery = 64'000'000;

/// What a file is looked at or opened for.
enum class FileIntent { read, write };

/// Whether a lock may be shared with others that share it.
enum class LockMode { exclusive, shared };

/// Whether sync and sync_dir reach the device. `skip` is for tests that model durability themselves.
enum class Syncing { device, skip };

/// What a file system still takes.
struct FreeSpace {
  Bytes bytes;
  std::int64_t files;  // and directories; the largest number there is where nobody knows
};

struct Fd {
  int value = -1;
  bool operator==(const Fd&) const = default;
};
struct CloseFd {
  void operator()(Fd fd) const noexcept;
};
using UniqueFd = UniqueHandle<Fd, CloseFd>;

/// A held lock; destruction (or the death of the process) releases it.
struct FileLock {
  UniqueFd fd;
};

struct FileCall;
class FileOps;

/// One open file, whose FileOps outlive it. Destruction closes it and reports nothing: what must survive is
/// synced before.
class File {
 public:
  File(FileOps& ops, UniqueFd fd, Path path) : ops_(ops), fd_(std::move(fd)), path_(std::move(path)) {}
  /// All of `bytes`, or an error. Past the end of the file the gap is zeros.
  void write_at(std::span<const std::byte> bytes, Bytes offset);
  /// All of `bytes` at the end of the file.
  void append(std::span<const std::byte> bytes) { write_at(bytes, size()); }
  /// Fills `bytes` as far as the file goes; returns how many bytes that was.
  Bytes read_at(std::span<std::byte> bytes, Bytes offset);
  /// Returns when data and length are on the device (fsync). The file's *name* needs FileOps::sync_dir.
  void sync();
  [[nodiscard]] Bytes size();
  [[nodiscard]] const Path& path() const { return path_; }

  // What BlockIo needs (block_io.h).
  /// One system call, which no hook sees: bytes moved (perhaps fewer than asked; 0 at the file's end), or
  /// -errno.
  std::int64_t write_some(std::span<const std::byte> bytes, Bytes offset) const;
  std::int64_t read_some(std::span<std::byte> bytes, Bytes offset) const;
  /// Room on the device for the file's first `size` bytes. Nothing happens where the file system cannot
  /// promise that. InputError (exit 73) where there is no such room, or the user's limit (ulimit -f) is
  /// lower.
  void allocate(Bytes size);
  /// From now on transfers go past the page cache (O_DIRECT), or through it. While they go past it, memory,
  /// offset and size are multiples of 4096. False: refused here, or the file lies in memory anyway (tmpfs).
  bool set_direct(bool direct) const;
  /// Another handle on the same open file, for another thread.
  std::unique_ptr<File> again();
  [[nodiscard]] int descriptor() const { return fd_.get().value; }

 private:
  FileOps& ops_;
  UniqueFd fd_;
  Path path_;
};

/// One open directory, whose FileOps outlive it. Names are looked up in it, whatever its path names by now,
/// and no symbolic link is followed: what is done here happens nowhere else.
///   Errors  InputError (exit 73).
class Directory {
 public:
  Directory(FileOps& ops, UniqueFd fd, Path path) : ops_(ops), fd_(std::move(fd)), path_(std::move(path)) {}
  /// Names in it, without "." and "..", in ascending order.
  [[nodiscard]] std::vector<std::string> list() const;
  /// A directory in it; null if `name` is none (a link to one is none).
  std::unique_ptr<Directory> open(const std::string& name);
  /// A file, a link (not what it leads to), a pipe, or an empty directory. Nothing happens if it is absent.
  void remove(const std::string& name);

 private:
  [[nodiscard]] int descriptor() const { return fd_.get().value; }
  [[nodiscard]] UniqueFd open_here(const std::string& name, int flags) const;

  FileOps& ops_;
  UniqueFd fd_;
  Path path_;
};

/// Files and directories of one machine, by POSIX calls; partial transfers and EINTR are continued.
///   Errors   InputError with the path, the call, the system's text and a fix: exit 73 where something was to
///            be written, 65 where something was to be read, 69 where the file system lacks the feature.
///            Files are regular ones: a pipe, a device or a socket is refused, and no call waits for another
///            process.
///   Threads  any number; two threads share no File.
///   Hooks    hooked_file_ops.h. What tests change beside that is virtual.
class FileOps {
 public:
  explicit FileOps(Syncing syncing) : syncing_(syncing) {}
  virtual ~FileOps() = default;
  FileOps(const FileOps&) = delete;
  FileOps& operator=(const FileOps&) = delete;
  /// A file open for writing and reading; what was there is emptied, but a symbolic link is not followed.
  std::unique_ptr<File> create(const Path& path);
  /// The same, but null if something is there already, a link that leads nowhere included.
  std::unique_ptr<File> create_new(const Path& path);
  /// A file that has no name, in `path`'s directory: it vanishes with its last handle, so also with a process
  /// that is killed. `path` is what errors show. Null where the file system has no such files (O_TMPFILE);
  /// atomic_dir.h has one for all.
  virtual std::unique_ptr<File> create_unnamed(const Path& path);
  /// An existing file, open for writing and reading; its content stays.
  std::unique_ptr<File> open_write(const Path& path);
  std::unique_ptr<File> open_read(const Path& path);
  /// Returns when the names in directory `path` (created, renamed, removed) are on the device.
  void sync_dir(const Path& path);
  /// `from` takes the name `to` in one step; a file at `to` is replaced, a directory there must be empty.
  void rename(const Path& from, const Path& to);
  /// The same, but false, and nothing has changed, if something bears the name `to`.
  bool rename_new(const Path& from, const Path& to);
  /// Two existing paths swap their names in one step (Linux; exit 69 where the file system cannot).
  void exchange(const Path& a, const Path& b);
  /// A file, a symbolic link or an empty directory.
  void remove(const Path& path);
  /// Null if `path` is no directory (after links have been followed) or absent.
  std::unique_ptr<Directory> open_dir(const Path& path);
  /// False if a directory is there already. The parent must exist: see make_dirs().
  bool make_dir(const Path& path);
  /// Null if somebody else (another process, or another call in this one) holds it, or `path` is no file or
  /// directory: a symbolic link is not followed. Exit 69 where the file system has no locks.
  virtual std::unique_ptr<FileLock> try_lock(const Path& path, LockMode mode);
  /// intent: what comes next there; exit 65 or 73 where this user may not look (a directory without its x).
  [[nodiscard]] PathKind kind(const Path& path, FileIntent intent = FileIntent::read);
  /// What bears this name itself: a symbolic link is a `link`.
  [[nodiscard]] PathKind kind_of_name(const Path& path, FileIntent intent = FileIntent::write);
  /// Whether what bears this name (itself) belongs to the user of this process.
  [[nodiscard]] bool is_own(const Path& path);
  [[nodiscard]] Bytes size(const Path& path);
  /// Names in a directory, without "." and "..", in ascending order.
  [[nodiscard]] std::vector<std::string> list(const Path& path);
  /// Of this user, on the file system that holds `path`.
  [[nodiscard]] virtual FreeSpace free_space(const Path& path);

 protected:
  /// Hooks around the calls of `inner`, which outlives it.
  explicit FileOps(FileOps* inner) : inner_(inner), syncing_(inner->syncing_) {}
  [[nodiscard]] FileOps& inner() const { return *inner_; }
  /// A hook that throws stops the call.
  virtual void before(const FileCall& call) {}
  /// After success; `changed` is false if the call came to nothing: it returned false or null (the name was
  /// taken).
  virtual void after(const FileCall& call, bool changed) {}

 private:
  friend class File;
  friend class Directory;
  template <class Act>
  auto hooked(const FileCall& call, Act act);
  void tell_after(const FileCall& call, bool changed);
  /// Opens what lies at `at`; `path` is what errors show. Null for the errors that mean nothing here.
  std::unique_ptr<File> open(const Path& at, const Path& path, int flags, FileIntent intent,
                             const char* action, std::initializer_list<int> none = {});

  FileOps* inner_ = nullptr;
  Syncing syncing_;
};

/// The real thing.
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
/// The file's first `most` bytes, or all that it has.
std::string head_of(File& file, std::size_t most);
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
