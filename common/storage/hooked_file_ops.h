// FileOps that watch or disturb another FileOps. No torch.
#pragma once

#include <cstdint>
#include <string_view>

#include "common/storage/file_ops.h"

namespace sc {

/// The calls of FileOps and File, by name.
enum class FileOp : std::uint8_t {
  create,  // create and create_new
  create_unnamed,
  open_write,
  open_read,
  write,  // write_at and append
  read,
  allocate,
  direct,  // set_direct
  sync,
  sync_dir,
  rename,  // rename and rename_new
  exchange,
  remove,
  make_dir,
  lock,
  look,  // kind, kind_of_name, is_own, size, list, free_space, open_dir
};
inline constexpr int kFileOps = 16;
std::string_view name_of(FileOp op);
/// Does the call change what a disk holds, or wait for it to?
bool is_mutating(FileOp op);

/// One call on its way to the decorated FileOps.
struct FileCall {
  FileOp op;
  Path path;
  Path other = {};                        // rename: the new name; exchange: the second path
  Bytes offset{0};                        // read, write
  Bytes size{0};                          // read: asked; write: given
  std::span<const std::byte> bytes = {};  // write
  File* file = nullptr;                   // read, write, sync: the inner file
};

/// Forwards every call to `inner` (which must outlive it), with a hook before and after. A hook that throws
/// stops the call. The single system calls of a BlockIo pass unseen.
class HookedFileOps : public FileOps {
 public:
  explicit HookedFileOps(FileOps& inner) : inner_(inner) {}

  std::unique_ptr<File> create(const Path& path) override;
  std::unique_ptr<File> create_new(const Path& path) override;
  std::unique_ptr<File> create_unnamed(const Path& path) override;
  std::unique_ptr<File> open_write(const Path& path) override;
  std::unique_ptr<File> open_read(const Path& path) override;
  void sync_dir(const Path& path) override;
  void rename(const Path& from, const Path& to) override;
  bool rename_new(const Path& from, const Path& to) override;
  void exchange(const Path& a, const Path& b) override;
  void remove(const Path& path) override;
  bool make_dir(const Path& path) override;
  std::unique_ptr<Directory> open_dir(const Path& path) override;
  std::unique_ptr<FileLock> try_lock(const Path& path, LockMode mode) override;
  using FileOps::kind;
  PathKind kind(const Path& path, FileIntent intent) override;
  using FileOps::kind_of_name;
  PathKind kind_of_name(const Path& path, FileIntent intent) override;
  bool is_own(const Path& path) override;
  Bytes size(const Path& path) override;
  std::vector<std::string> list(const Path& path) override;
  FreeSpace free_space(const Path& path) override;

 protected:
  virtual void before(const FileCall& call) {}
  /// After success; `changed` is false if the call came to nothing: it returned false or null (the name was
  /// taken).
  virtual void after(const FileCall& call, bool changed) {}
  FileOps& inner_;

 private:
  class HookedFile;
  class HookedDirectory;
  template <class Call>
  auto hooked(const FileCall& call, Call forward);
};

}  // namespace sc
