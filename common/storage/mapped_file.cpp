#include "common/storage/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace sc {
namespace {

/// The mapping of an open file; empty for an empty one, which the system refuses to map.
std::span<const std::byte> map_fd(int fd, const Path& path) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) throw file_error(FileIntent::read, path, "read the size", errno);
  if (S_ISDIR(info.st_mode)) throw file_error(FileIntent::read, path, "open", EISDIR);
  if (!S_ISREG(info.st_mode)) throw not_regular(FileIntent::read, path);
  const auto size = static_cast<std::size_t>(info.st_size);
  if (size == 0) return {};
  void* at = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
  if (at == MAP_FAILED) throw file_error(FileIntent::read, path, "map into memory", errno);
  return {static_cast<const std::byte*>(at), size};
}

}  // namespace

MappedFile::MappedFile(const Path& path) : path_(path) {
  // O_NONBLOCK: opening a pipe without a writer would wait for one.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) throw file_error(FileIntent::read, path, "open", errno);
  try {
    bytes_ = map_fd(fd, path);
    if (!bytes_.empty()) guarded_ = guard(bytes_, path);
  } catch (...) {
    ::close(fd);
    throw;
  }
  ::close(fd);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      bytes_(std::exchange(other.bytes_, {})),
      guarded_(std::exchange(other.guarded_, nullptr)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  if (this != &other) {
    unmap();
    path_ = std::move(other.path_);
    bytes_ = std::exchange(other.bytes_, {});
    guarded_ = std::exchange(other.guarded_, nullptr);
  }
  return *this;
}

MappedFile::~MappedFile() { unmap(); }

void MappedFile::unmap() noexcept {
  if (guarded_ != nullptr) unguard(*std::exchange(guarded_, nullptr));
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
  bytes_ = {};
}

}  // namespace sc
