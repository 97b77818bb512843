// A run's checkpoints: directories step-NNNNNN next to each other. No torch.
//
// A directory with such a name is a whole checkpoint: it got the name in one step, after everything in it was
// on the device (atomic_dir.h), and loses it in one step before anything in it is removed. No file says which
// is the latest.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/storage/atomic_dir.h"
#include "common/storage/checkpoint/manifest.h"

namespace sc::checkpoint {

/// What the checkpoint of a step is called: "step-000400"; at least six digits.
std::string generation_name(std::int64_t step);
/// The step in generation_name()'s result; nullopt for any other name.
std::optional<std::int64_t> step_of_name(std::string_view name);

/// Whether a file with this name is the manifest or a rank's file.
bool is_file_of_checkpoint(std::string_view name);

struct Generation {
  std::int64_t step = 0;
  Path path;
};

/// The generations in `dir` by ascending step; other names are ignored. Empty if `dir` is absent.
std::vector<Generation> generations(FileOps& ops, const Path& dir);

struct PassedOver {
  Path path;
  std::string why;  // "<file>: <what>"
};
struct Newest {
  std::optional<Generation> found;
  std::vector<PassedOver> passed_over;  // newer ones, newest first
};
/// The newest generation whose blocks are all undamaged. Ranks that share the work call generations() and,
/// from its end, Reader::verify(part, parts), and agree on the result.
Newest newest_whole(FileOps& ops, const Path& dir);

/// Ends a save, when all ranks have finished their files: the owner of `out` (an AtomicDir whose target is
/// DIR/step-NNNNNN) writes the manifest, opens the checkpoint as a reader would, and commits.
///   Errors  those of Reader and of AtomicDir; nothing has changed then.
void commit_generation(FileOps& ops, AtomicDir& out, const Manifest& manifest);

/// Keeps the newest `keep` generations up to `newest_step` (the one just committed) and removes older ones.
/// Newer ones stay; a run that was taken back to an earlier step has such. Also removes what crashed saves
/// and removals left, for any step (remove_leftover()); what a living process writes is locked and stays. If
/// a generation is a symbolic link, the link is removed.
///   keep     at least 1
///   Returns  old generations that stay, and why: they contain something that is no file of a checkpoint, or
///            they cannot be removed.
///   Errors   InputError (exit 73). The generations kept are whole in any case.
std::vector<PassedOver> remove_old_generations(FileOps& ops, const Path& dir, std::int64_t newest_step,
                                               std::int64_t keep);

}  // namespace sc::checkpoint
