#include "common/storage/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace sc {

MappedFile::MappedFile(const Path& path) : path_(path) {
  // With O_NONBLOCK, opening a pipe does not wait for a writer.
  const UniqueFd fd(Fd{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)});
  if (!fd) throw file_error(FileIntent::read, path, "open", errno);
  struct stat info {};
  if (::fstat(fd.get().value, &info) != 0) throw file_error(FileIntent::read, path, "read the size", errno);
  if (S_ISDIR(info.st_mode)) throw file_error(FileIntent::read, path, "open", EISDIR);
  if (!S_ISREG(info.st_mode)) throw not_regular(FileIntent::read, path);
  const auto size = static_cast<std::size_t>(info.st_size);
  if (size == 0) return;  // the system does not map empty files
  void* at = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd.get().value, 0);
  if (at == MAP_FAILED) throw file_error(FileIntent::read, path, "map into memory", errno);
  const std::span<const std::byte> bytes(static_cast<const std::byte*>(at), size);
  mapping_.reset(guard(bytes, path), [bytes](Guarded* guarded) {
    unguard(*guarded);
    ::munmap(const_cast<std::byte*>(bytes.data()), bytes.size());
  });
  bytes_ = bytes;
}

}  // namespace sc
