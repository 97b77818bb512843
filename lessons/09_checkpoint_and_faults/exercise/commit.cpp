#include "lessons/09_checkpoint_and_faults/exercise/commit.h"

namespace sc {

/// Makes `target` a directory that holds `files` and nothing else, whatever stops this on the way.
///   Before  `target` is absent, or a directory of plain files. Its parent exists.
///   Shapes  any number of files, of any size; names without '/'.
///   Crash   at any operation, with everything that was not flushed kept, lost or zeroed: `target` is either
///           as it was before, or new and whole. Data are durable after File::sync, names after
///           FileOps::sync_dir of their directory (common/storage/file_ops.h).
///   After   the new directory is durable. Nothing else is left in the parent, by this call or by one that
///           crashed.
///   Errors  what `ops` throws (a full disk, say) is passed on; then too `target` is the old or the new one.
///   Alone   no other process writes here. If one did, this would become AtomicDir: do not call that.
void commit(FileOps& ops, const Path& target, const FileContents& files) {
  // TODO: this is right if nothing was there and nothing stops it. A reader meanwhile sees half of it.
  ops.make_dir(target);
  for (const auto& [name, content] : files) ops.create(target / name)->append(as_bytes(content));
}

}  // namespace sc
