#include "versions_read.h"

#include <array>

#include "common/comm/gather_text.h"

namespace sc {

std::vector<VersionsRead> gather_versions(const VersionsRead& mine, Communicator& comm) {
  using Row = std::array<std::int64_t, 3>;  // backward's or forward's, updates, micro-batches
  std::vector<Row> rows;
  for (const auto& [updates, microbatches] : mine.forward) rows.push_back({0, updates, microbatches});
  for (const auto& [updates, microbatches] : mine.backward) rows.push_back({1, updates, microbatches});
  std::vector<VersionsRead> all;
  for (const std::vector<Row>& of_rank : gather_values(comm, rows)) {
    VersionsRead& read = all.emplace_back();
    for (const auto& [backward, updates, microbatches] : of_rank)
      (backward != 0 ? read.backward : read.forward)[updates] = microbatches;
  }
  return all;
}

}  // namespace sc
