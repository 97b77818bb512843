#include "lessons/09_checkpoint_and_faults/exercise/commit.h"

namespace sc {

void commit(FileOps& ops, const Path& target, const FileContents& files) {
  const Path parent = parent_of(target), hidden = parent / ("." + target.filename().string() + ".tmp");
  remove_tree(ops, hidden);  // what a crash has left
  ops.make_dir(hidden);
  for (const auto& [name, content] : files) {
    const auto file = ops.create(hidden / name);
    file->append(as_bytes(content));
    file->sync();
  }
  ops.sync_dir(hidden);  // the names of the files, before anybody can find them
  if (ops.kind(target) == PathKind::absent)
    ops.rename(hidden, target);
  else
    ops.exchange(hidden, target);  // the old one stays whole under the hidden name
  ops.sync_dir(parent);            // only now is the old one not needed any more
  remove_tree(ops, hidden);
}

}  // namespace sc
