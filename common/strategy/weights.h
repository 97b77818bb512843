// Weights into and out of a strategy, whatever it shards, through Hugging Face's safetensors files.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "common/comm/communicator.h"
#include "common/storage/file_ops.h"
#include "common/strategy/strategy.h"

namespace sc::detail {

/// Overwrites the strategy's parameters (and fp32 master) with those of `path`. One unit is in memory at a
/// time, beside the ledger.
///   Returns  HfWeights::notes().
///   Errors   InputError (exit 65) for a file that is not this model's.
std::vector<std::string> load_weights(Strategy& strategy, const ParamLayout& layout, const std::string& path);

/// Calls take(unit, values) for every unit in turn, on every rank: all of its parameters, exact (the fp32
/// master's where there is one), fp32 in host memory, laid out as layout.whole() says, whatever the strategy
/// shards or cuts. Collective.
void for_each_whole_unit(Strategy& strategy, const ParamLayout& layout, Communicator& comm,
                         const std::function<void(int unit, const UnitTensors& values)>& take);

/// Before a run whose end would be too late for it: can a file be written at `path`? Makes missing parent
/// directories.
///   Errors  InputError: exit 73; exit 65 where transformers would load it by a config.json of another model.
void check_save_path(FileOps& ops, const Path& path, const GptConfig& config);

/// Writes all parameters to `path` on rank 0, complete or not at all, and write_hf_config(). Collective: what
/// a rank does not hold comes from the others, a unit at a time.
///   meet  called by all ranks before each unit and at the end: where the others wait while rank 0 writes.
void save_weights(Strategy& strategy, const ParamLayout& layout, Communicator& comm, FileOps& ops,
                  const std::string& path, const std::function<void()>& meet);

}  // namespace sc::detail
