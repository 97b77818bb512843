// A run from the GPU it opens to the code it ends with.
#pragma once

#include "common/run/train_job.h"

namespace sc::detail {

/// Trains, and returns 0, or ends the process with the code of what went wrong, reported once for all ranks.
///   Errors  InputError, before ranks meet: --eval-every without a text to evaluate on (exit 64), and those
///           of RunLocks.
int train(TrainJob job);

}  // namespace sc::detail
