// Where a resumed run begins in its data, and what keys that may differ (--resume-with) change there.
#pragma once

#include <cstdint>
#include <string>

#include "common/comm/communicator.h"
#include "common/data/dataset.h"
#include "common/run/train_job.h"
#include "common/storage/checkpoint/manifest.h"

namespace sc::detail {

struct Continuation {
  std::int64_t rows = 0;  // position of the first step in the order of rows, which is the number of rows done
  std::int64_t tokens = 0;  // trained on before
  bool last_rows = true;    // the checkpoint's last step used the rows before that position
  std::string says;         // lines for the user; empty if everything continues unchanged
};

/// Rows continue after the checkpoint's, even if batch.global differs now. If they would be other rows, or in
/// another order, they start again at the first one. Rank 0 reads the token file. Collective.
///   Errors  InputError (exit 65) on all ranks: the file holds other tokens and data.source may not differ;
///           the manifest's workload has impossible values.
Continuation continuation_of(const TrainJob& job, const checkpoint::Manifest& from, const Dataset& data,
                             Communicator& comm);

}  // namespace sc::detail
