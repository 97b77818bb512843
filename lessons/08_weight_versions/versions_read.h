// Which versions micro-batches were computed with, from all ranks.
#pragma once

#include <vector>

#include "common/comm/communicator.h"
#include "common/watch/timetable.h"

namespace sc {

/// By rank, on rank 0. Collective.
std::vector<VersionsRead> gather_versions(const VersionsRead& mine, Communicator& comm);

}  // namespace sc
