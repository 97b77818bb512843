// Timelines and bars as SVG with a fixed layout: the same input gives the same bytes. Figures contain their
// own background for light and dark mode, a title and a description for readers who do not see them, and
// hatching, which marks simulated data.
#pragma once

#include <string>
#include <vector>

#include "pipedream/simulate.h"

namespace sc::pipedream {

struct TimelineFigure {
  std::string title;
  std::string description;             // the alternative text
  std::vector<std::string> row_notes;  // right of each stage's row; may be empty
  bool show_versions = false;          // boxes are coloured and labelled by weight version instead of by kind
  double begin = 0, end = 0;           // the part of the time that is drawn; end 0: all
};

/// A figure with one row per stage, and one box per compute action with its microbatch (and version).
std::string timeline_svg(const Schedule& schedule, const Timeline& timeline, const TimelineFigure& figure);

struct BarGroup {
  std::string name;
  std::vector<double> shares;  // 0 to 1, one for each series
};

struct BarFigure {
  std::string title;
  std::string description;          // the alternative text
  std::string note;                 // under the bars
  std::vector<std::string> series;  // the names of the bars in a group
  std::vector<BarGroup> groups;
};

/// A figure with groups of bars, each bar with its percentage.
std::string bars_svg(const BarFigure& figure);

}  // namespace sc::pipedream
