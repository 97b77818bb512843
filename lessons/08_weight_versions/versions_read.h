// Collects from all ranks which versions their micro-batches were computed with.
#pragma once

#include <vector>

#include "common/comm/communicator.h"
#include "common/watch/timetable.h"

namespace sc {

/// What every rank has counted, by rank, on rank 0; empty on the others. Collective.
std::vector<VersionsRead> gather_versions(const VersionsRead& mine, Communicator& comm);

}  // namespace sc
