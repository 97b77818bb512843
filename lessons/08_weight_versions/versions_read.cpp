// For the report at a run's end: which versions micro-batches were computed with, and when.
#include "versions_read.h"

#include <array>

#include "common/comm/gather_text.h"
#include "common/pipeline/measured.h"
#include "weight_versions.h"

namespace sc {

std::vector<VersionsRead> gather_versions(const VersionsRead& mine, Communicator& comm) {
  using Row = std::array<std::int64_t, 3>;  // 1 for backward, else 0; updates behind; micro-batches
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

std::optional<Timetable> WeightVersions::timetable(Communicator& comm) {
  std::vector<VersionsRead> versions = gather_versions(versions_.read, comm);
  Timetable table = timetable_of({.share = share_,
                                  .options = stage_options(endless_.options),
                                  .steps = endless_.steps(),
                                  .first = since_},
                                 context_.timeline, comm);
  table.length = "period", table.versions = std::move(versions);
  return table;
}

}  // namespace sc
