#include "lessons/09_checkpoint_and_faults/exercise/commit.h"

namespace sc {

/// Makes `target` a directory that holds `files` and nothing else, whatever stops this on the way.
///   Before  `target` is absent, or a directory of plain files. Its parent is there.
///   Shapes  any number of files, of any size; names without '/'.
///   Crash   at any operation, with all that was not flushed kept, lost or zeroed: `target` is as it was
///           before, or new, whole. Data is durable after File::sync, names after FileOps::sync_dir of their
///           directory (common/storage/file_ops.h).
///   After   the new directory is durable. Nothing else lies in the parent, of this call or of one that
///           crashed.
///   Errors  what `ops` throws (a full disk, say) is passed on; `target` is the old or the new one then, too.
///   Alone   no other process writes here. Where one does, this becomes AtomicDir: do not call that.
void commit(FileOps& ops, const Path& target, const FileContents& files) {
  // TODO: this is right if nothing was there and nothing stops it. Whoever looks meanwhile sees half of it.
  ops.make_dir(target);
  for (const auto& [name, content] : files) ops.create(target / name)->append(as_bytes(content));
}

}  // namespace sc
