// Loads and saves the weights of any strategy, however it shards them, in Hugging Face's safetensors files.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "common/comm/communicator.h"
#include "common/storage/file_ops.h"
#include "common/strategy/strategy.h"

namespace sc::detail {

/// Overwrites the strategy's parameters (and fp32 master) with those in `path`. One unit at a time is in
/// memory, outside the ledger.
///   Returns  HfWeights::notes().
///   Errors   InputError (exit 65) for a file that is not this model's.
std::vector<std::string> load_weights(Strategy& strategy, const ParamLayout& layout, const std::string& path);

/// Calls take(unit, values) for every unit in turn, on every rank: all of the unit's parameters, exact (from
/// the fp32 master if there is one), fp32 in host memory, laid out like layout.whole(), however the strategy
/// shards or cuts them. Collective.
void for_each_whole_unit(Strategy& strategy, const ParamLayout& layout, Communicator& comm,
                         const std::function<void(int unit, const UnitTensors& values)>& take);

/// Checks before a run whether a file can be written at `path` at its end. Makes missing parent directories.
///   Errors  InputError: exit 73; exit 65 if transformers would load the file with a config.json of another
///           model.
void check_save_path(FileOps& ops, const Path& path, const GptConfig& config);

/// Writes all parameters to `path` on rank 0, completely or not at all, and calls write_hf_config().
/// Collective: other ranks send what rank 0 lacks, one unit at a time.
///   meet  called by all ranks before each unit and at the end; the others wait in it while rank 0 writes.
void save_weights(Strategy& strategy, const ParamLayout& layout, Communicator& comm, FileOps& ops,
                  const std::string& path, const std::function<void()>& meet);

}  // namespace sc::detail
