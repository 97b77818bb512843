// When ranks did what in a step, next to when a simulation says that they do. No torch.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace sc {

/// How many updates behind the weights were that a rank's micro-batches were computed with, when their
/// gradient was complete: by updates, how many micro-batches.
struct VersionsRead {
  std::map<std::int64_t, std::int64_t> forward, backward;
};

struct Timetable {
  /// One action; seconds from the step's beginning.
  struct Span {
    std::string name;  // "F3"
    double begin = 0, end = 0;
    double expected_begin = 0, expected_end = 0;
  };
  /// What the whole step came to, by one way of knowing it.
  struct Row {
    std::string name;    // "measured"
    double seconds = 0;  // makespan: from the first action to the end of the last; period: from end to end
    double idle = 0;     // share of the ranks' time
    std::string from;    // where it comes from
  };
  /// What a step's time went to; what runs at the same time counts for each.
  struct Share {
    std::string name;             // "disk reads"
    std::vector<double> seconds;  // by rank: mean of the steps
  };
  std::string length = "makespan";  // what a row's seconds are
  std::vector<Row> rows = {};
  std::vector<std::vector<Span>> ranks = {};  // of the step that took the median time
  std::vector<Share> shares = {};
  std::vector<VersionsRead> versions = {};  // by rank, where there are several
  std::string costs = {};                   // what was simulated with, as the text of a file "costs.json"
};

}  // namespace sc
