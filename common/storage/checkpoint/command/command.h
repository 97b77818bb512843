// The subcommands of `checkpoint`. No torch.
#pragma once

#include <ostream>

#include "common/storage/checkpoint/command/options.h"
#include "common/storage/checkpoint/reader.h"

namespace sc::checkpoint {

/// Carries out a command line and reports to `log`. Returns the exit code: 1 if diff found differences.
///   Errors  InputError: exit 65 for a checkpoint that is damaged or none, exit 73 for an output.
int run(FileOps& ops, const Options& options, std::ostream& log);

int show(FileOps& ops, const Path& dir, std::ostream& log);
/// Lists which tensors each file holds, in the model's order, with what is in flight last.
int show_entries(FileOps& ops, const Path& dir, std::ostream& log);
int verify(FileOps& ops, const Path& dir, std::ostream& log);
int diff(FileOps& ops, const Path& a, const Path& b, std::ostream& log);

/// Writes the weights to `out`, byte for byte like export_hf_weights (model/hf_weights.h).
///   Memory  the largest tensor and some rows.
///   Errors  also exit 65 if the manifest's workload lacks model.vocab, and exit 70 for a weight that is not
///           finite, or would not be in `--dtype`. Then nothing is written.
int export_weights(FileOps& ops, const Options& options, std::ostream& log);

/// The checkpoint at `path`: `path` itself, or the newest whole one in it; `log` gets those passed over.
///   Errors  InputError (exit 65) if there is none.
Path one_checkpoint(FileOps& ops, const Path& path, std::ostream& log);
/// All checkpoints at `path` as one_checkpoint() looks for them, whole or not, in ascending order.
std::vector<Path> all_checkpoints(FileOps& ops, const Path& path);

}  // namespace sc::checkpoint
