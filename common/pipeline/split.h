// Which blocks each position of a pipeline computes.
#pragma once

#include <string>
#include <vector>

#include "common/config/workload.h"

namespace sc {

/// The consecutive blocks of one position. The first position also has the embedding, the last one the head.
struct Part {
  int first = 1, blocks = 1;
  [[nodiscard]] int last() const { return first + blocks - 1; }
  bool operator==(const Part&) const = default;
};

/// Cuts the model into one part per position, each of at least one block.
///   split       "balanced": minimises the time of the slowest position, the head's included; "uniform":
///               equal numbers of blocks, the first positions one more; or the numbers themselves, "7,7,7,3".
///   profile_in  times for balanced: a file with pipedream's profile, or "none" for operation counts.
///   Source      operations of forward per token: block 24 d^2 + 2 T d, head 2 V d (pipedream/partition.h).
///   Errors      InputError (exit 64) at "split": more positions than blocks, or numbers that do not add up;
///               at "profile_in": a profile of another model, or (64, 65) no profile.
std::vector<Part> cut_blocks(const Workload& workload, int positions, const std::string& split,
                             const std::string& profile_in = "none");

}  // namespace sc
