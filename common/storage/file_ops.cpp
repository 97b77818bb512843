#include "common/storage/file_ops.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <spdlog/fmt/fmt.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "common/base/handle.h"

namespace sc {
namespace {

struct Fd {
  int value = -1;
  bool operator==(const Fd&) const = default;
};
struct CloseFd {
  void operator()(Fd fd) const noexcept { ::close(fd.value); }
};
using UniqueFd = UniqueHandle<Fd, CloseFd>;

/// Repeats a system call that a signal interrupted.
template <class Call>
auto retry(Call call) {
  for (;;) {
    const auto result = call();
    if (result != -1 || errno != EINTR) return result;
  }
}

// O_NONBLOCK: opening a pipe would wait for whoever opens its other end. For files it means nothing.
UniqueFd open_fd(const Path& path, int flags) {
  constexpr mode_t kMode = 0666;  // the user's umask takes away
  return UniqueFd(Fd{retry([&] { return ::open(path.c_str(), flags | O_CLOEXEC | O_NONBLOCK, kMode); })});
}

PathKind kind_of(const struct stat& info) {
  if (S_ISREG(info.st_mode)) return PathKind::file;
  if (S_ISLNK(info.st_mode)) return PathKind::link;
  return S_ISDIR(info.st_mode) ? PathKind::directory : PathKind::other;
}

// A name that is too long is nobody's; what is to be written there says so.
PathKind kind_of_none(const Path& path, FileIntent intent, int error) {
  if (error == ENOENT || error == ENOTDIR || error == ENAMETOOLONG) return PathKind::absent;
  throw file_error(intent, path, "look at", error);
}

// Names behind `fd`, which is used up.
std::vector<std::string> names_in(UniqueFd fd, const Path& path, FileIntent intent) {
  DIR* stream = ::fdopendir(fd.get().value);
  if (stream == nullptr) throw file_error(intent, path, "list the directory", errno);
  (void)fd.release();  // the stream's now
  std::vector<std::string> names;
  errno = 0;
  for (const dirent* entry = ::readdir(stream); entry != nullptr; entry = ::readdir(stream)) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  const int error = errno;
  ::closedir(stream);
  if (error != 0) throw file_error(intent, path, "list the directory", error);
  std::sort(names.begin(), names.end());
  return names;
}

class PosixDirectory final : public Directory {
 public:
  PosixDirectory(UniqueFd fd, Path path) : fd_(std::move(fd)), path_(std::move(path)) {}

  std::vector<std::string> list() override {
    return names_in(open_here(".", O_RDONLY | O_DIRECTORY), path_, FileIntent::write);
  }

  std::unique_ptr<Directory> open(const std::string& name) override {
    UniqueFd fd = open_here(name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
    if (!fd && (errno == ENOTDIR || errno == ELOOP || errno == ENOENT)) return nullptr;
    if (!fd) throw file_error(FileIntent::write, path_ / name, "open the directory", errno);
    return std::make_unique<PosixDirectory>(std::move(fd), path_ / name);
  }

  void remove(const std::string& name) override {
    if (::unlinkat(fd_.get().value, name.c_str(), 0) == 0 || errno == ENOENT) return;
    if (errno == EISDIR && ::unlinkat(fd_.get().value, name.c_str(), AT_REMOVEDIR) == 0) return;
    throw file_error(FileIntent::write, path_ / name, "remove", errno);
  }

  [[nodiscard]] const Path& path() const override { return path_; }

 private:
  [[nodiscard]] UniqueFd open_here(const std::string& name, int flags) const {
    return UniqueFd(Fd{retry([&] { return ::openat(fd_.get().value, name.c_str(), flags | O_CLOEXEC); })});
  }

  UniqueFd fd_;
  Path path_;
};

class PosixFile final : public File {
 public:
  PosixFile(UniqueFd fd, Path path, Syncing syncing)
      : fd_(std::move(fd)), path_(std::move(path)), syncing_(syncing) {}

  void write_at(std::span<const std::byte> bytes, Bytes offset) override {
    std::int64_t done = 0;
    const auto total = static_cast<std::int64_t>(bytes.size());
    while (done < total) {
      const auto n = retry([&] {
        return ::pwrite(fd_.get().value, bytes.data() + done, bytes.size() - static_cast<std::size_t>(done),
                        offset.value() + done);
      });
      if (n <= 0) {
        const int error = n == 0 ? EIO : errno;
        throw file_error(FileIntent::write, path_,
                         fmt::format("write {} bytes at byte {}", total - done, offset.value() + done),
                         error);
      }
      done += n;
    }
  }

  void append(std::span<const std::byte> bytes) override { write_at(bytes, size()); }

  Bytes read_at(std::span<std::byte> bytes, Bytes offset) override {
    std::int64_t done = 0;
    const auto total = static_cast<std::int64_t>(bytes.size());
    while (done < total) {
      const auto n = retry([&] {
        return ::pread(fd_.get().value, bytes.data() + done, bytes.size() - static_cast<std::size_t>(done),
                       offset.value() + done);
      });
      if (n < 0) {
        const int error = errno;
        throw file_error(FileIntent::read, path_,
                         fmt::format("read {} bytes at byte {}", total - done, offset.value() + done), error);
      }
      if (n == 0) break;
      done += n;
    }
    return Bytes(done);
  }

  void sync() override {
    if (syncing_ == Syncing::device && retry([&] { return ::fsync(fd_.get().value); }) != 0) {
      throw file_error(FileIntent::write, path_, "flush to the device", errno);
    }
  }

  Bytes size() override {
    struct stat info {};
    if (::fstat(fd_.get().value, &info) != 0)
      throw file_error(FileIntent::read, path_, "read the size", errno);
    return Bytes(info.st_size);
  }

  [[nodiscard]] const Path& path() const override { return path_; }

  std::int64_t write_some(std::span<const std::byte> bytes, Bytes offset) override {
    const auto n = ::pwrite(fd_.get().value, bytes.data(), bytes.size(), offset.value());
    return n < 0 ? -errno : n;
  }

  std::int64_t read_some(std::span<std::byte> bytes, Bytes offset) override {
    const auto n = ::pread(fd_.get().value, bytes.data(), bytes.size(), offset.value());
    return n < 0 ? -errno : n;
  }

  void allocate(Bytes size) override {
    require_size_allowed(path_, size);
    int error = 0;
    if (retry([&] { return ::fallocate(fd_.get().value, 0, 0, size.value()); }) != 0) {
      error = errno == EOPNOTSUPP || errno == ENOSYS ? 0 : errno;
    }
    if (error != 0)
      throw file_error(FileIntent::write, path_, fmt::format("allocate {} bytes", size.value()), error);
  }

  bool set_direct(bool direct) override {
    struct statfs info {};
    // tmpfs takes the flag and copies within memory all the same.
    if (direct && ::fstatfs(fd_.get().value, &info) == 0 && info.f_type == TMPFS_MAGIC) return false;
    const int flags = ::fcntl(fd_.get().value, F_GETFL);
    return ::fcntl(fd_.get().value, F_SETFL, direct ? flags | O_DIRECT : flags & ~O_DIRECT) == 0;
  }

  std::unique_ptr<File> again() override {
    UniqueFd fd(Fd{::fcntl(fd_.get().value, F_DUPFD_CLOEXEC, 0)});
    if (!fd) throw file_error(FileIntent::write, path_, "open once more", errno);
    return std::make_unique<PosixFile>(std::move(fd), path_, syncing_);
  }

  [[nodiscard]] int descriptor() const override { return fd_.get().value; }

 private:
  UniqueFd fd_;
  Path path_;
  Syncing syncing_;
};

class PosixLock final : public FileLock {
 public:
  explicit PosixLock(UniqueFd fd) : fd_(std::move(fd)) {}

 private:
  UniqueFd fd_;
};

class PosixFileOps final : public FileOps {
 public:
  explicit PosixFileOps(Syncing syncing) : syncing_(syncing) {}

  std::unique_ptr<File> create(const Path& path) override {
    return open_regular(path, O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW, FileIntent::write, "create");
  }

  std::unique_ptr<File> create_new(const Path& path) override {
    UniqueFd fd = open_fd(path, O_RDWR | O_CREAT | O_EXCL);
    if (!fd && errno == EEXIST) return nullptr;
    if (!fd) throw file_error(FileIntent::write, path, "create", errno);
    return std::make_unique<PosixFile>(std::move(fd), path, syncing_);
  }

  std::unique_ptr<File> create_unnamed(const Path& path) override {
    UniqueFd fd = open_fd(parent_of(path), O_RDWR | O_TMPFILE);
    if (!fd && (errno == EOPNOTSUPP || errno == EISDIR)) return nullptr;
    if (!fd) throw file_error(FileIntent::write, path, "create", errno);
    return std::make_unique<PosixFile>(std::move(fd), path, syncing_);
  }

  std::unique_ptr<File> open_write(const Path& path) override {
    return open_regular(path, O_RDWR, FileIntent::write, "open for writing");
  }

  std::unique_ptr<File> open_read(const Path& path) override {
    return open_regular(path, O_RDONLY, FileIntent::read, "open");
  }

  void sync_dir(const Path& path) override {
    const UniqueFd fd = open_fd(path, O_RDONLY | O_DIRECTORY);
    if (!fd) throw file_error(FileIntent::write, path, "open the directory", errno);
    if (syncing_ == Syncing::device && retry([&] { return ::fsync(fd.get().value); }) != 0) {
      throw file_error(FileIntent::write, path, "flush the directory to the device", errno);
    }
  }

  void rename(const Path& from, const Path& to) override {
    if (::rename(from.c_str(), to.c_str()) != 0) {
      const int error = errno;
      throw file_error(FileIntent::write, to, fmt::format("rename {} to it", from.string()), error);
    }
  }

  bool rename_new(const Path& from, const Path& to) override {
    if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return true;
    // Where the file system does not know the flag a second name is given, which replaces nothing, either.
    if (errno == EINVAL && ::link(from.c_str(), to.c_str()) == 0) return ::unlink(from.c_str()) == 0;
    const int error = errno;
    if (error == EEXIST) return false;
    throw file_error(FileIntent::write, to, fmt::format("rename {} to it", from.string()), error);
  }

  void exchange(const Path& a, const Path& b) override {
    if (::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) != 0) {
      // EINVAL is how a file system says that it does not know the flag.
      const int error = errno == EINVAL ? EOPNOTSUPP : errno;
      throw file_error(FileIntent::write, b, fmt::format("swap names with {}", a.string()), error);
    }
  }

  void remove(const Path& path) override {
    if (::remove(path.c_str()) != 0) throw file_error(FileIntent::write, path, "remove", errno);
  }

  bool make_dir(const Path& path) override {
    constexpr mode_t kMode = 0777;
    if (::mkdir(path.c_str(), kMode) == 0) return true;
    const int error = errno;
    if (error == EEXIST && kind(path, FileIntent::write) == PathKind::directory) return false;
    throw file_error(FileIntent::write, path, "create the directory", error);
  }

  std::unique_ptr<FileLock> try_lock(const Path& path, LockMode mode) override {
    // Network file systems demand a file that is open for writing.
    UniqueFd fd = open_fd(path, O_RDWR | O_NOFOLLOW);
    if (!fd && (errno == EISDIR || errno == EACCES || errno == EROFS))
      fd = open_fd(path, O_RDONLY | O_NOFOLLOW);
    if (!fd && (errno == ENOENT || errno == ELOOP || errno == ENXIO)) return nullptr;
    if (!fd) throw file_error(FileIntent::write, path, "open for locking", errno);
    const int how = mode == LockMode::exclusive ? LOCK_EX : LOCK_SH;
    if (retry([&] { return ::flock(fd.get().value, how | LOCK_NB); }) != 0) {
      if (errno == EWOULDBLOCK) return nullptr;
      throw file_error(FileIntent::write, path, "lock", errno);
    }
    // Between open and lock the holder may have renamed what was opened: then the lock is not on what `path`
    // names now.
    struct stat locked {
    }, named{};
    const bool same = ::fstat(fd.get().value, &locked) == 0 && ::lstat(path.c_str(), &named) == 0 &&
                      locked.st_ino == named.st_ino && locked.st_dev == named.st_dev;
    return same ? std::make_unique<PosixLock>(std::move(fd)) : nullptr;
  }

  PathKind kind(const Path& path, FileIntent intent) override {
    struct stat info {};
    if (::stat(path.c_str(), &info) == 0) return kind_of(info);
    return errno == ELOOP ? PathKind::other : kind_of_none(path, intent, errno);
  }

  PathKind kind_of_name(const Path& path, FileIntent intent) override {
    struct stat info {};
    return ::lstat(path.c_str(), &info) == 0 ? kind_of(info) : kind_of_none(path, intent, errno);
  }

  bool is_own(const Path& path) override {
    struct stat info {};
    return ::lstat(path.c_str(), &info) == 0 && info.st_uid == ::geteuid();
  }

  std::unique_ptr<Directory> open_dir(const Path& path) override {
    UniqueFd fd = open_fd(path, O_RDONLY | O_DIRECTORY);
    if (!fd && (errno == ENOTDIR || errno == ELOOP || errno == ENOENT)) return nullptr;
    if (!fd) throw file_error(FileIntent::write, path, "open the directory", errno);
    return std::make_unique<PosixDirectory>(std::move(fd), path);
  }

  Bytes size(const Path& path) override {
    struct stat info {};
    if (::stat(path.c_str(), &info) != 0) throw file_error(FileIntent::read, path, "read the size", errno);
    return Bytes(info.st_size);
  }

  std::vector<std::string> list(const Path& path) override {
    UniqueFd fd = open_fd(path, O_RDONLY | O_DIRECTORY);
    if (!fd) throw file_error(FileIntent::read, path, "list the directory", errno);
    return names_in(std::move(fd), path, FileIntent::read);
  }

  FreeSpace free_space(const Path& path) override {
    struct statvfs info {};
    if (retry([&] { return ::statvfs(path.c_str(), &info); }) != 0) {
      throw file_error(FileIntent::write, path, "ask for free space", errno);
    }
    constexpr fsfilcnt_t kMany = 1'000'000'000;  // also where inodes are made as needed (btrfs: 0 in all)
    const fsfilcnt_t files = info.f_files == 0 ? kMany : std::min<fsfilcnt_t>(info.f_favail, kMany);
    return {Bytes(static_cast<std::int64_t>(info.f_bavail) * static_cast<std::int64_t>(info.f_frsize)),
            static_cast<std::int64_t>(files)};
  }

 private:
  std::unique_ptr<File> open_regular(const Path& path, int flags, FileIntent intent, const char* action) {
    UniqueFd fd = open_fd(path, flags);
    if (!fd) throw file_error(intent, path, action, errno);
    struct stat info {};
    if (::fstat(fd.get().value, &info) == 0 && !S_ISREG(info.st_mode))
      throw S_ISDIR(info.st_mode) ? file_error(intent, path, "open", EISDIR) : not_regular(intent, path);
    return std::make_unique<PosixFile>(std::move(fd), path, syncing_);
  }

  Syncing syncing_;
};

}  // namespace

std::unique_ptr<FileOps> posix_file_ops(Syncing syncing) { return std::make_unique<PosixFileOps>(syncing); }

Path parent_of(const Path& path) {
  const Path parent = path.parent_path();
  return parent.empty() ? Path(".") : parent;
}

void make_dirs(FileOps& ops, const Path& path) {
  if (path.empty() || ops.kind(path, FileIntent::write) == PathKind::directory) return;
  make_dirs(ops, path.parent_path());
  if (ops.make_dir(path)) ops.sync_dir(parent_of(path));
}

namespace {

void remove_entry(Directory& parent, const std::string& name) {
  if (const auto inner = parent.open(name)) {
    for (const std::string& below : inner->list()) remove_entry(*inner, below);
  }
  parent.remove(name);
}

}  // namespace

void remove_tree(FileOps& ops, const Path& path) {
  if (const auto parent = ops.open_dir(parent_of(path))) remove_entry(*parent, path.filename().string());
}

std::optional<std::unique_ptr<FileLock>> try_lock_if_any(FileOps& ops, const Path& path, LockMode mode) {
  try {
    return ops.try_lock(path, mode);
  } catch (const InputError& error) {
    if (error.code() != ExitCode::missing) throw;
    return std::nullopt;
  }
}

std::unique_ptr<File> create_only(FileOps& ops, const Path& path) {
  std::unique_ptr<File> file = ops.create_new(path);
  if (file == nullptr) throw file_error(FileIntent::write, path, "create", EEXIST);
  return file;
}

std::string read_file(FileOps& ops, const Path& path) {
  const auto file = ops.open_read(path);
  std::string text(static_cast<std::size_t>(file->size().value()), '\0');
  const Bytes got = file->read_at(std::as_writable_bytes(std::span(text)), Bytes(0));
  text.resize(static_cast<std::size_t>(got.value()));
  return text;
}

}  // namespace sc
