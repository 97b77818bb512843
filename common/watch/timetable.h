// When ranks did what in a step, next to when a simulation says that they do. No torch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace sc {

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
    double seconds = 0;  // from the first action to the end of the last
    double idle = 0;     // share of the ranks' time
    std::string from;    // where it comes from
  };
  std::vector<Row> rows;
  std::vector<std::vector<Span>> ranks = {};  // of the step that took the median time
  std::string costs = {};                     // what was simulated with, as the text of a file "costs.json"
};

}  // namespace sc
