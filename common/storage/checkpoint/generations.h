// A run's checkpoints: directories step-NNNNNN side by side. No torch.
//
// A directory of that name is a whole checkpoint: it took its name in one step, after everything in it was on
// the device (atomic_dir.h), and gives it up in one step before anything of it is removed. There is no file
// that says which is the latest.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/storage/atomic_dir.h"
#include "common/storage/checkpoint/manifest.h"

namespace sc::checkpoint {

/// "step-000400"; at least six digits.
std::string generation_name(std::int64_t step);
/// Nothing if `name` is not what generation_name() writes.
std::optional<std::int64_t> step_of_name(std::string_view name);

/// The manifest, or a rank's file.
bool is_file_of_checkpoint(std::string_view name);

struct Generation {
  std::int64_t step = 0;
  Path path;
};

/// Those in `dir`, ascending steps; other names are ignored. Empty if `dir` is absent.
std::vector<Generation> generations(FileOps& ops, const Path& dir);

struct PassedOver {
  Path path;
  std::string why;  // "<file>: <what>"
};
struct Newest {
  std::optional<Generation> found;
  std::vector<PassedOver> passed_over;  // newer ones, newest first
};
/// The newest of which every block is as it was written. Ranks that share the work take generations() from
/// its end, Reader::verify(part, parts), and agree.
Newest newest_whole(FileOps& ops, const Path& dir);

/// The last act of a save, by whoever owns `out` (an AtomicDir whose target is DIR/step-NNNNNN), when all
/// ranks have finished their files: writes the manifest, opens the whole as a reader would, and commits.
///   Errors  those of Reader and of AtomicDir; nothing has changed then.
void commit_generation(FileOps& ops, AtomicDir& out, const Manifest& manifest);

/// Keeps the newest `keep` generations up to `newest_step` (the one just committed) and removes older ones.
/// Newer ones, which a run that was taken back to an earlier step finds, stay. Removes as well what crashed
/// saves and removals left, whatever their step (remove_leftover()); what a living process writes is locked
/// and stays. Of a generation that is a symbolic link the link goes.
///   keep     at least 1
///   Returns  old generations that stay, and why: something in them is no file of a checkpoint, or cannot be
///            removed.
///   Errors   InputError (exit 73). What was kept is whole in any case.
std::vector<PassedOver> remove_old_generations(FileOps& ops, const Path& dir, std::int64_t newest_step,
                                               std::int64_t keep);

}  // namespace sc::checkpoint
