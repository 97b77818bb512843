// When ranks did what in a step, compared with a simulation. No torch.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace sc {

/// How old the weights of a rank's micro-batches were: the number of micro-batches for each number of updates
/// between the version read and the completion of the gradient.
struct VersionsRead {
  std::map<std::int64_t, std::int64_t> forward, backward;
};

struct Timetable {
  /// One action, in seconds from the step's beginning.
  struct Span {
    std::string name;  // e.g. "F3"
    double begin = 0, end = 0;
    double expected_begin = 0, expected_end = 0;
  };
  /// One measurement or prediction of the whole step.
  struct Row {
    std::string name;    // e.g. "measured"
    double seconds = 0;  // makespan: from the first action to the end of the last; period: from end to end
    double idle = 0;     // share of the ranks' time
    std::string from;    // source of the numbers
  };
  /// A share of the step's time; things that happen at the same time are counted separately.
  struct Share {
    std::string name;             // e.g. "disk reads"
    std::vector<double> seconds;  // by rank: mean over the steps
  };
  std::string length = "makespan";  // meaning of a row's seconds: makespan or period
  std::vector<Row> rows = {};
  std::vector<std::vector<Span>> ranks = {};  // of the step with the median time
  std::vector<Share> shares = {};
  std::vector<VersionsRead> versions = {};  // by rank, if there are several versions
  std::string costs = {};                   // the simulation's input, as the text of a file costs.json
};

}  // namespace sc
