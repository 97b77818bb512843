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

/// The directory of this lesson's checkpoints.
Path checkpoints_dir(const TrainJob& job);

/// The checkpoint that --resume names. In a directory it is the newest whole one, for which ranks share the
/// reading. Collective.
///   Errors  InputError on all ranks.
std::unique_ptr<checkpoint::Reader> open_checkpoint(const TrainJob& job, Communicator& comm);
/// Checks before anything is allocated that the checkpoint has this workload, except for keys that may
/// differ.
void refuse_other_workload(const TrainJob& job, const checkpoint::Manifest& manifest);
/// The progress of a run that a checkpoint stores besides the strategy's state.
struct Position {
  std::int64_t step = 0;              // the next step
  std::int64_t rows = 0, tokens = 0;  // as in a manifest
  std::int64_t updates = 0;
  checkpoint::LossScaler scaler;
  std::int64_t skips_in_a_row = 0;
};
/// The position without rows and tokens.
Position position_of(const StepScalars& scalars, std::int64_t step, std::int64_t skips_in_a_row);

/// Restores the number of updates, and the loss scaler.
void restore_scalars(const checkpoint::Manifest& from, const StepScalars& scalars);
/// The fingerprint of the tokens that are trained on; reads the whole file.
checkpoint::DataFingerprint fingerprint_of(const Path& tokens);
/// An error's place and text, for a message with another fix.
std::string text_without_fix(const InputError& error);

}  // namespace sc::detail
