// FileOps that watch or disturb another FileOps. No torch.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

#include "common/storage/file_ops.h"

namespace sc {

/// The calls of FileOps and File that hooks see: none that only inspect or open, nor BlockIo's.
enum class FileOp : std::uint8_t {
  create,  // create and create_new
  create_unnamed,
  write,  // write_at and append
  read,
  allocate,
  sync,
  sync_dir,
  rename,  // rename and rename_new
  exchange,
  remove,
  make_dir,
  lock
};
inline constexpr int kFileOps = 12;
constexpr std::string_view name_of(FileOp op) {
  constexpr std::string_view kNames[kFileOps] = {"create",
                                                 "create without a name",
                                                 "write",
                                                 "read",
                                                 "allocate",
                                                 "flush to the device",
                                                 "flush the directory",
                                                 "rename",
                                                 "swap names",
                                                 "remove",
                                                 "create the directory",
                                                 "lock"};
  return kNames[static_cast<int>(op)];
}
/// Whether the call changes what a disk holds, or waits for such a change.
constexpr bool is_mutating(FileOp op) { return op != FileOp::read && op != FileOp::lock; }

struct FileCall {
  FileOp op;
  Path path;
  Path other = {};                        // rename: the new name; exchange: the second path
  Bytes offset{0};                        // read, write
  Bytes size{0};                          // read: bytes asked for; write: bytes given
  std::span<const std::byte> bytes = {};  // write
  File* file = nullptr;                   // read, write, allocate, sync
};

/// FileOps with a hook before and after every call of `inner`.
class HookedFileOps : public FileOps {
 public:
  explicit HookedFileOps(FileOps& inner) : FileOps(&inner) {}
  explicit HookedFileOps(std::unique_ptr<FileOps> inner) : FileOps(inner.get()), owned_(std::move(inner)) {}

 private:
  const std::unique_ptr<FileOps> owned_;  // null if `inner` is not owned
};

}  // namespace sc
