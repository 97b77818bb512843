// A run, from opening its GPU to its exit code.
#pragma once

#include "common/run/train_job.h"

namespace sc::detail {

/// Trains and returns 0, or ends the process with the code of an error, which is reported once for all ranks.
///   Errors  InputError, before ranks meet: --eval-every without a text to evaluate on (exit 64), or an error
///           of RunLocks.
int train(TrainJob job);

}  // namespace sc::detail
