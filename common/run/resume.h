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
/// Updates that were made, and the loss scaler.
void restore_scalars(const checkpoint::Manifest& from, const StepScalars& scalars);
/// Of the tokens that are trained on: all of the file is read.
checkpoint::DataFingerprint fingerprint_of(const Path& tokens);
/// Where and what, for a text that has a fix of its own.
std::string text_without_fix(const InputError& error);

}  // namespace sc::detail
