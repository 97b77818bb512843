// Where a run that goes on begins in its data, and what the keys that may differ (--resume-with) change
// there.
#pragma once

#include <cstdint>
#include <string>

#include "common/comm/communicator.h"
#include "common/data/dataset.h"
#include "common/run/train_job.h"
#include "common/storage/checkpoint/manifest.h"

namespace sc::detail {

struct Continuation {
  std::int64_t rows = 0;    // where the first step begins in the order of rows: as many as are done of it
  std::int64_t tokens = 0;  // trained on before
  bool last_rows = true;    // the checkpoint's last step was made of the rows before that position
  std::string says;         // lines for the reader; empty: all goes on as it was
};

/// Rows go on where the checkpoint's ended, whatever batch.global is now. Where they would be other rows, or
/// in another order, they begin anew at the first one. Rank 0 reads the token file. Collective.
///   Errors  InputError (exit 65) on all ranks: the file holds other tokens and data.source may not differ;
///           the manifest's workload has values that none has.
Continuation continuation_of(const TrainJob& job, const checkpoint::Manifest& from, const Dataset& data,
                             Communicator& comm);

}  // namespace sc::detail
