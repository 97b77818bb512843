// Messages about system calls that were refused.
#include <spdlog/fmt/fmt.h>
#include <sys/resource.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>

#include "common/storage/file_ops.h"

namespace sc {
namespace {

struct Fix {
  int error;
  const char* text;
};
constexpr Fix kFixes[] = {
    {EFBIG, "raise the limit of a file's size (ulimit -f unlimited), or use another file system"},
    {EROFS, "write to a file system that is not read-only"},
    {ENOTDIR, "a part of the path is a file: check the path"},
    {EISDIR, "give the path of a file, not of a directory"},
    {EEXIST, "something else has that name: give another one, or move it away"},
    {ELOOP, "it is a symbolic link, or its links lead in a circle: give the path of the thing itself"},
    {ENOTEMPTY, "something else uses it: see what it holds, and give another path"},
    {EBUSY, "something else uses it: see what it holds, and give another path"},
    {ENAMETOOLONG, "give a shorter name"},
    {EIO, "the device reports an error (see dmesg): use another disk"},
    {EMFILE, "raise the limit of open files: ulimit -n 4096"},
    {ENFILE, "raise the limit of open files: ulimit -n 4096"},
    {EOPNOTSUPP, "use a local file system (ext4, xfs, btrfs, tmpfs)"},
    {ENOSYS, "use a local file system (ext4, xfs, btrfs, tmpfs)"},
    {ENOLCK, "use a local file system (ext4, xfs, btrfs, tmpfs)"},
};

bool no_file_can_be_made(const Path& path) {
  struct statvfs info {};
  return ::statvfs(parent_of(path).c_str(), &info) == 0 && info.f_files > 0 && info.f_favail == 0;
}

std::string fix_for(FileIntent intent, const Path& path, int error) {
  const bool writes = intent == FileIntent::write;
  if (error == ENOSPC || error == EDQUOT)
    return no_file_can_be_made(path)
               ? "remove files: no more can be made there (df -i), however much space is free"
               : "free space on the file system that holds it, or write elsewhere";
  if (error == EACCES || error == EPERM)
    return writes ? "write where you have permission, or change the directory's owner or mode"
                  : fmt::format("make it readable: chmod u+r {}", path.string());
  if (error == ENOENT)
    return writes ? fmt::format("create its directory: mkdir -p {}", parent_of(path).string())
                  : "check the path (it is relative to the working directory)";
  const auto* found = std::ranges::find(kFixes, error, &Fix::error);
  return found != std::end(kFixes) ? found->text : "check the path and the file system that holds it";
}

}  // namespace

std::string errno_text(int error) {
  const char* name = ::strerrorname_np(error);
  const char* text = ::strerrordesc_np(error);
  return fmt::format("{} ({})", text != nullptr ? text : "unknown error",
                     name != nullptr ? name : std::to_string(error));
}

InputError file_error(FileIntent intent, const Path& path, const std::string& action, int error) {
  ExitCode code = intent == FileIntent::write ? ExitCode::cannot_write : ExitCode::data;
  if (error == EOPNOTSUPP || error == ENOSYS || error == ENOLCK) code = ExitCode::missing;
  return {code, path.string(), fmt::format("cannot {}: {}", action, errno_text(error)),
          fix_for(intent, path, error)};
}

InputError not_regular(FileIntent intent, const Path& path) {
  return {
      intent == FileIntent::write ? ExitCode::cannot_write : ExitCode::data, path.string(),
      "is not a regular file (it is a pipe, a device or a socket)",
      intent == FileIntent::write ? "give the path of a file" : "copy its content to a file and give that"};
}

void require_size_allowed(const Path& path, Bytes size) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < static_cast<rlim_t>(size.value()))
    throw file_error(FileIntent::write, path, fmt::format("allocate {} bytes", size.value()), EFBIG);
}

}  // namespace sc
