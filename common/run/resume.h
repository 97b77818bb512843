// A run that goes on from a checkpoint: which one, and whether it is of this workload and of this data.
#pragma once

#include <memory>
#include <string>

#include "common/comm/communicator.h"
#include "common/optim/adamw.h"
#include "common/run/train_job.h"
#include "common/storage/checkpoint/manifest.h"
#include "common/storage/checkpoint/reader.h"

namespace sc::detail {

/// Where this lesson's checkpoints are.
Path checkpoints_dir(const TrainJob& job);

/// The checkpoint that --resume names: of a directory the newest whole one, for which ranks share the
/// reading.
/// Collective.
///   Errors  InputError on all ranks.
std::unique_ptr<checkpoint::Reader> open_checkpoint(const TrainJob& job, Communicator& comm);
/// Before anything is allocated: it is of this workload but for the keys that may differ.
void refuse_other_workload(const TrainJob& job, const checkpoint::Manifest& manifest);
/// What a checkpoint knows of a run besides the strategy's state.
struct Position {
  std::int64_t step = 0;              // that is done next
  std::int64_t rows = 0, tokens = 0;  // as a manifest has them
  std::int64_t updates = 0;
  checkpoint::LossScaler scaler;
  std::int64_t skips_in_a_row = 0;
};
/// Without rows and tokens.
Position position_of(const StepScalars& scalars, std::int64_t step, std::int64_t skips_in_a_row);

/// Updates that were made, and the loss scaler.
void restore_scalars(const checkpoint::Manifest& from, const StepScalars& scalars);
/// Of the tokens that are trained on: all of the file is read.
checkpoint::DataFingerprint fingerprint_of(const Path& tokens);
/// Where and what, for a text that has a fix of its own.
std::string text_without_fix(const InputError& error);

}  // namespace sc::detail
