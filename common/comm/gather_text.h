// Short texts between ranks, over any communicator. For the start and the end of a run: the tensors are not
// in the ledger.
#pragma once

#include <string>
#include <vector>

#include "common/comm/communicator.h"

namespace sc {

/// Every rank's text, by rank, on rank 0; empty on the others. Any length, any bytes. Collective.
///   Cost  one all_gather of i64 [1], and one message from each other rank that has anything to say.
std::vector<std::string> gather_strings(Communicator& comm, const std::string& text);
/// Rank 0's text on every rank. Collective.  Cost: two broadcasts.
std::string broadcast_string(Communicator& comm, const std::string& text);
/// What the ranks have to say, on every rank: "rank 1: ...; rank 3: ..."; empty if none has. Collective.
std::string said_by_all(Communicator& comm, const std::string& mine);

}  // namespace sc
