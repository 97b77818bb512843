// Resuming a run: which checkpoint, and whether it fits this workload and data.
#pragma once

#include <memory>
#include <string>

#include "common/comm/communicator.h"
#include "common/optim/adamw.h"
#include "common/run/train_job.h"
#include "common/storage/checkpoint/manifest.h"
#include "common/storage/checkpoint/reader.h"

namespace sc::detail {

Path checkpoints_dir(const TrainJob& job);

/// The checkpoint that --resume names: in a directory the newest whole one, which ranks share the work of
/// checking. Collective.
///   Errors  InputError on all ranks.
std::unique_ptr<checkpoint::Reader> open_checkpoint(const TrainJob& job, Communicator& comm);
/// Checks, before anything is allocated, that a checkpoint has this workload but for keys that may differ.
void refuse_other_workload(const TrainJob& job, const checkpoint::Manifest& manifest);
/// How far a run has come, as a checkpoint stores it next to the strategy's state.
struct Position {
  std::int64_t step = 0;              // the next step
  std::int64_t rows = 0, tokens = 0;  // as in a manifest
  std::int64_t updates = 0;
  checkpoint::LossScaler scaler;
  std::int64_t skips_in_a_row = 0;
};
/// The Position of a run, without rows and tokens.
Position position_of(const StepScalars& scalars, std::int64_t step, std::int64_t skips_in_a_row);

/// Restores the scalars of a checkpoint: the number of updates, and the loss scaler.
void restore_scalars(const checkpoint::Manifest& from, const StepScalars& scalars);
/// The fingerprint of the tokens that are trained on; reads the whole file.
checkpoint::DataFingerprint fingerprint_of(const Path& tokens);
/// The place and text of an error, for a message with another fix.
std::string text_without_fix(const InputError& error);

}  // namespace sc::detail
