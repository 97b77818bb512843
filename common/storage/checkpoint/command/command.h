// The subcommands of `checkpoint`. No torch.
#pragma once

#include <ostream>

#include "common/storage/checkpoint/command/options.h"
#include "common/storage/checkpoint/reader.h"

namespace sc::checkpoint {

/// Does what the options say and tells `log` about it. Returns the exit code: 1 if diff found differences.
///   Errors  InputError: exit 65 for a checkpoint that is damaged or none, exit 73 for an output.
int run(FileOps& ops, const Options& options, std::ostream& log);

int show(FileOps& ops, const Path& dir, std::ostream& log);
/// What each file holds of which tensor: the model's order, what is in flight last.
int show_entries(FileOps& ops, const Path& dir, std::ostream& log);
int verify(FileOps& ops, const Path& dir, std::ostream& log);
int diff(FileOps& ops, const Path& a, const Path& b, std::ostream& log);

/// Writes the weights to `out` as export_hf_weights (model/hf_weights.h) does: equal to the byte.
///   Memory  the largest tensor and some rows.
///   Errors  also exit 65 if the manifest's workload does not say model.vocab; exit 70 for a weight that is
///           not finite, or not as `--dtype`. Then nothing is written.
int export_weights(FileOps& ops, const Options& options, std::ostream& log);

/// `path` itself if it is a checkpoint, else the newest whole one in it; tells `log` what was passed over.
///   Errors  InputError (exit 65) if there is none.
Path one_checkpoint(FileOps& ops, const Path& path, std::ostream& log);
/// The same for all that are there, whole or not, ascending.
std::vector<Path> all_checkpoints(FileOps& ops, const Path& path);

}  // namespace sc::checkpoint
