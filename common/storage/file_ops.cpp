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
#include <functional>
#include <type_traits>

#include "common/storage/hooked_file_ops.h"

namespace sc {
namespace {

template <class Call>
auto retry(Call call) {
  for (;;) {
    const auto result = call();
    if (result != -1 || errno != EINTR) return result;
  }
}

// Opens a file without following a link. O_NONBLOCK, which files ignore, keeps pipes from waiting.
UniqueFd open_fd(const Path& path, int flags) {
  constexpr mode_t kMode = 0666;  // reduced by the user's umask
  return UniqueFd(Fd{retry([&] { return ::open(path.c_str(), flags | O_CLOEXEC | O_NONBLOCK, kMode); })});
}

PathKind kind_of(const struct stat& info) {
  if (S_ISREG(info.st_mode)) return PathKind::file;
  if (S_ISLNK(info.st_mode)) return PathKind::link;
  return S_ISDIR(info.st_mode) ? PathKind::directory : PathKind::other;
}

// The kind of a path that stat() refuses. Too long a name cannot exist; writing to it gives its own error.
PathKind kind_of_none(const Path& path, FileIntent intent, int error) {
  if (error == ENOENT || error == ENOTDIR || error == ENAMETOOLONG) return PathKind::absent;
  throw file_error(intent, path, "look at", error);
}

std::vector<std::string> names_in(UniqueFd fd, const Path& path, FileIntent intent) {
  DIR* stream = ::fdopendir(fd.get().value);
  if (stream == nullptr) throw file_error(intent, path, "list the directory", errno);
  (void)fd.release();  // the stream owns it now
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

/// The opened directory; null if it is not one. `fd` is the result of the last system call, which set errno.
std::unique_ptr<Directory> opened(FileOps& ops, UniqueFd fd, const Path& path) {
  if (!fd && (errno == ENOTDIR || errno == ELOOP || errno == ENOENT)) return nullptr;
  if (!fd) throw file_error(FileIntent::write, path, "open the directory", errno);
  return std::make_unique<Directory>(ops, std::move(fd), path);
}

InputError not_renamed(const Path& from, const Path& to, int error) {
  return file_error(FileIntent::write, to, fmt::format("rename {} to it", from.string()), error);
}

/// Moves all of `bytes`, reading as far as the file goes. `some` is File::write_some or File::read_some.
template <class Some, class Byte>
Bytes move_all(File& file, Some some, std::span<Byte> bytes, Bytes offset, FileIntent intent) {
  std::int64_t done = 0;
  const std::int64_t total = std::ssize(bytes);
  while (done < total) {
    const std::int64_t moved =
        std::invoke(some, file, bytes.subspan(static_cast<std::size_t>(done)), offset + Bytes(done));
    if (moved == -EINTR) continue;
    if (moved == 0 && intent == FileIntent::read) break;
    if (moved <= 0)
      throw file_error(intent, file.path(),
                       fmt::format("{} {} bytes at byte {}", intent == FileIntent::write ? "write" : "read",
                                   total - done, offset.value() + done),
                       moved == 0 ? EIO : static_cast<int>(-moved));
    done += moved;
  }
  return Bytes(done);
}

}  // namespace

void CloseFd::operator()(Fd fd) const noexcept { ::close(fd.value); }

template <class Act>
auto FileOps::hooked(const FileCall& call, Act act) {
  for (FileOps* ops = this; ops != nullptr; ops = ops->inner_) ops->before(call);
  if constexpr (std::is_void_v<decltype(act())>) {
    act();
    tell_after(call, true);
  } else {
    auto result = act();
    bool changed = true;
    if constexpr (std::is_constructible_v<bool, decltype(result)&>) changed = static_cast<bool>(result);
    tell_after(call, changed);
    return result;
  }
}

void FileOps::tell_after(const FileCall& call, bool changed) {
  if (inner_ != nullptr) inner_->tell_after(call, changed);
  after(call, changed);
}

std::vector<std::string> Directory::list() const {
  return names_in(open_here(".", O_RDONLY | O_DIRECTORY), path_, FileIntent::write);
}

std::unique_ptr<Directory> Directory::open(const std::string& name) {
  return opened(ops_, open_here(name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW), path_ / name);
}

void Directory::remove(const std::string& name) {
  ops_.hooked({.op = FileOp::remove, .path = path_ / name}, [&] {
    if (::unlinkat(descriptor(), name.c_str(), 0) == 0 || errno == ENOENT) return;
    if (errno == EISDIR && ::unlinkat(descriptor(), name.c_str(), AT_REMOVEDIR) == 0) return;
    throw file_error(FileIntent::write, path_ / name, "remove", errno);
  });
}

UniqueFd Directory::open_here(const std::string& name, int flags) const {
  return UniqueFd(Fd{retry([&] { return ::openat(descriptor(), name.c_str(), flags | O_CLOEXEC); })});
}

void File::write_at(std::span<const std::byte> bytes, Bytes offset) {
  ops_.hooked({.op = FileOp::write,
               .path = path_,
               .offset = offset,
               .size = Bytes(std::ssize(bytes)),
               .bytes = bytes,
               .file = this},
              [&] { move_all(*this, &File::write_some, bytes, offset, FileIntent::write); });
}

Bytes File::read_at(std::span<std::byte> bytes, Bytes offset) {
  return ops_.hooked(
      {.op = FileOp::read, .path = path_, .offset = offset, .size = Bytes(std::ssize(bytes)), .file = this},
      [&] { return move_all(*this, &File::read_some, bytes, offset, FileIntent::read); });
}

void File::sync() {
  ops_.hooked({.op = FileOp::sync, .path = path_, .file = this}, [&] {
    if (ops_.syncing_ == Syncing::device && retry([&] { return ::fsync(descriptor()); }) != 0)
      throw file_error(FileIntent::write, path_, "flush to the device", errno);
  });
}

Bytes File::size() {
  struct stat info {};
  if (::fstat(descriptor(), &info) != 0) throw file_error(FileIntent::read, path_, "read the size", errno);
  return Bytes(info.st_size);
}

std::int64_t File::write_some(std::span<const std::byte> bytes, Bytes offset) const {
  const auto n = ::pwrite(descriptor(), bytes.data(), bytes.size(), offset.value());
  return n < 0 ? -errno : n;
}

std::int64_t File::read_some(std::span<std::byte> bytes, Bytes offset) const {
  const auto n = ::pread(descriptor(), bytes.data(), bytes.size(), offset.value());
  return n < 0 ? -errno : n;
}

void File::allocate(Bytes size) {
  ops_.hooked({.op = FileOp::allocate, .path = path_, .size = size, .file = this}, [&] {
    require_size_allowed(path_, size);
    if (retry([&] { return ::fallocate(descriptor(), 0, 0, size.value()); }) == 0) return;
    const int error = errno;
    if (error != EOPNOTSUPP && error != ENOSYS)
      throw file_error(FileIntent::write, path_, fmt::format("allocate {} bytes", size.value()), error);
  });
}

bool File::set_direct(bool direct) const {
  struct statfs info {};
  // tmpfs accepts the flag and still copies within memory.
  if (direct && ::fstatfs(descriptor(), &info) == 0 && info.f_type == TMPFS_MAGIC) return false;
  const int flags = ::fcntl(descriptor(), F_GETFL);
  return ::fcntl(descriptor(), F_SETFL, direct ? flags | O_DIRECT : flags & ~O_DIRECT) == 0;
}

std::unique_ptr<File> File::again() {
  UniqueFd fd(Fd{::fcntl(descriptor(), F_DUPFD_CLOEXEC, 0)});
  if (!fd) throw file_error(FileIntent::write, path_, "open once more", errno);
  return std::make_unique<File>(ops_, std::move(fd), path_);
}

// NOLINTNEXTLINE(readability-function-size): arguments of the system call and of the message
std::unique_ptr<File> FileOps::open(const Path& at, const Path& path, int flags, FileIntent intent,
                                    const char* action, std::initializer_list<int> none) {
  UniqueFd fd = open_fd(at, flags);
  if (!fd && std::ranges::find(none, errno) != none.end()) return nullptr;
  if (!fd) throw file_error(intent, path, action, errno);
  struct stat info {};
  if (::fstat(fd.get().value, &info) == 0 && !S_ISREG(info.st_mode))
    throw S_ISDIR(info.st_mode) ? file_error(intent, path, "open", EISDIR) : not_regular(intent, path);
  return std::make_unique<File>(*this, std::move(fd), path);
}

std::unique_ptr<File> FileOps::create(const Path& path) {
  return hooked({.op = FileOp::create, .path = path}, [&] {
    return open(path, path, O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW, FileIntent::write, "create");
  });
}

std::unique_ptr<File> FileOps::create_new(const Path& path) {
  return hooked({.op = FileOp::create, .path = path}, [&] {
    return open(path, path, O_RDWR | O_CREAT | O_EXCL, FileIntent::write, "create", {EEXIST});
  });
}

std::unique_ptr<File> FileOps::create_unnamed(const Path& path) {
  return hooked({.op = FileOp::create_unnamed, .path = path}, [&] {
    return open(parent_of(path), path, O_RDWR | O_TMPFILE, FileIntent::write, "create", {EOPNOTSUPP, EISDIR});
  });
}

std::unique_ptr<File> FileOps::open_write(const Path& path) {
  return open(path, path, O_RDWR, FileIntent::write, "open for writing");
}

std::unique_ptr<File> FileOps::open_read(const Path& path) {
  return open(path, path, O_RDONLY, FileIntent::read, "open");
}

void FileOps::sync_dir(const Path& path) {
  hooked({.op = FileOp::sync_dir, .path = path}, [&] {
    const UniqueFd fd = open_fd(path, O_RDONLY | O_DIRECTORY);
    if (!fd) throw file_error(FileIntent::write, path, "open the directory", errno);
    if (syncing_ == Syncing::device && retry([&] { return ::fsync(fd.get().value); }) != 0)
      throw file_error(FileIntent::write, path, "flush the directory to the device", errno);
  });
}

void FileOps::rename(const Path& from, const Path& to) {
  hooked({.op = FileOp::rename, .path = from, .other = to}, [&] {
    if (::rename(from.c_str(), to.c_str()) != 0) throw not_renamed(from, to, errno);
  });
}

bool FileOps::rename_new(const Path& from, const Path& to) {
  return hooked({.op = FileOp::rename, .path = from, .other = to}, [&] {
    if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return true;
    // If the file system does not know the flag, link() adds a second name, which replaces nothing either.
    if (errno == EINVAL && ::link(from.c_str(), to.c_str()) == 0) return ::unlink(from.c_str()) == 0;
    if (errno == EEXIST) return false;
    throw not_renamed(from, to, errno);
  });
}

void FileOps::exchange(const Path& a, const Path& b) {
  hooked({.op = FileOp::exchange, .path = a, .other = b}, [&] {
    if (::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0) return;
    // EINVAL means that the file system does not know the flag.
    const int error = errno == EINVAL ? EOPNOTSUPP : errno;
    throw file_error(FileIntent::write, b, fmt::format("swap names with {}", a.string()), error);
  });
}

void FileOps::remove(const Path& path) {
  hooked({.op = FileOp::remove, .path = path}, [&] {
    if (::remove(path.c_str()) != 0) throw file_error(FileIntent::write, path, "remove", errno);
  });
}

bool FileOps::make_dir(const Path& path) {
  return hooked({.op = FileOp::make_dir, .path = path}, [&] {
    constexpr mode_t kMode = 0777;
    if (::mkdir(path.c_str(), kMode) == 0) return true;
    const int error = errno;
    if (error == EEXIST && kind(path, FileIntent::write) == PathKind::directory) return false;
    throw file_error(FileIntent::write, path, "create the directory", error);
  });
}

std::unique_ptr<FileLock> FileOps::try_lock(const Path& path, LockMode mode) {
  return hooked({.op = FileOp::lock, .path = path}, [&]() -> std::unique_ptr<FileLock> {
    // Network file systems lock only a file that is open for writing.
    UniqueFd fd = open_fd(path, O_RDWR | O_NOFOLLOW);
    if (!fd && (errno == EISDIR || errno == EACCES || errno == EROFS))
      fd = open_fd(path, O_RDONLY | O_NOFOLLOW);
    if (!fd && (errno == ENOENT || errno == ELOOP || errno == ENXIO)) return nullptr;
    if (!fd) throw file_error(FileIntent::write, path, "open for locking", errno);
    const int how = (mode == LockMode::exclusive ? LOCK_EX : LOCK_SH) | LOCK_NB;
    if (retry([&] { return ::flock(fd.get().value, how); }) != 0) {
      if (errno == EWOULDBLOCK) return nullptr;
      throw file_error(FileIntent::write, path, "lock", errno);
    }
    // Between open and lock, the previous owner may have renamed the file: then the lock is not on the file
    // that `path` names now.
    struct stat locked {
    }, named{};
    const bool same = ::fstat(fd.get().value, &locked) == 0 && ::lstat(path.c_str(), &named) == 0 &&
                      locked.st_ino == named.st_ino && locked.st_dev == named.st_dev;
    return std::unique_ptr<FileLock>(same ? new FileLock{std::move(fd)} : nullptr);
  });
}

PathKind FileOps::kind(const Path& path, FileIntent intent) {
  struct stat info {};
  if (::stat(path.c_str(), &info) == 0) return kind_of(info);
  return errno == ELOOP ? PathKind::other : kind_of_none(path, intent, errno);
}

PathKind FileOps::kind_of_name(const Path& path, FileIntent intent) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0 ? kind_of(info) : kind_of_none(path, intent, errno);
}

bool FileOps::is_own(const Path& path) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0 && info.st_uid == ::geteuid();
}

std::unique_ptr<Directory> FileOps::open_dir(const Path& path) {
  return opened(*this, open_fd(path, O_RDONLY | O_DIRECTORY), path);
}

Bytes FileOps::size(const Path& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) throw file_error(FileIntent::read, path, "read the size", errno);
  return Bytes(info.st_size);
}

std::vector<std::string> FileOps::list(const Path& path) {
  UniqueFd fd = open_fd(path, O_RDONLY | O_DIRECTORY);
  if (!fd) throw file_error(FileIntent::read, path, "list the directory", errno);
  return names_in(std::move(fd), path, FileIntent::read);
}

FreeSpace FileOps::free_space(const Path& path) {
  struct statvfs info {};
  if (retry([&] { return ::statvfs(path.c_str(), &info); }) != 0)
    throw file_error(FileIntent::write, path, "ask for free space", errno);
  // File systems that make inodes as needed report 0 (btrfs): they have as many as anybody needs.
  constexpr fsfilcnt_t kMany = 1'000'000'000;
  const fsfilcnt_t files = info.f_files == 0 ? kMany : std::min<fsfilcnt_t>(info.f_favail, kMany);
  return {Bytes(static_cast<std::int64_t>(info.f_bavail) * static_cast<std::int64_t>(info.f_frsize)),
          static_cast<std::int64_t>(files)};
}

std::unique_ptr<FileOps> posix_file_ops(Syncing syncing) { return std::make_unique<FileOps>(syncing); }

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

std::string head_of(File& file, std::size_t most) {
  std::string text(most, '\0');
  const Bytes got = file.read_at(std::as_writable_bytes(std::span(text)), Bytes(0));
  text.resize(static_cast<std::size_t>(got.value()));
  return text;
}

std::string read_file(FileOps& ops, const Path& path) {
  const auto file = ops.open_read(path);
  return head_of(*file, static_cast<std::size_t>(file->size().value()));
}

}  // namespace sc
