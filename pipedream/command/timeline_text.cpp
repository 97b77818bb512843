#include "pipedream/command/timeline_text.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "pipedream/command/text.h"

namespace sc::pipedream {

namespace {

constexpr int kMostTicks = 120;
constexpr int kColumns = 96;

struct Cell {
  std::string text;
  Kind kind = Kind::step;  // step stands for idle
};
using Row = std::vector<Cell>;

const char* colour_of(Kind kind) {
  switch (kind) {
    case Kind::forward:
      return "\x1b[30;104m";
    case Kind::backward:
      return "\x1b[30;103m";
    case Kind::backward_input:
      return "\x1b[30;105m";
    case Kind::backward_weights:
      return "\x1b[30;102m";
    default:
      return "\x1b[2m";
  }
}

bool is_multiple(double value, double tick) {
  const double ratio = value / tick;
  return std::abs(ratio - std::round(ratio)) < 1e-6;
}

// Calls visit(action, span) for every compute action that takes time.
template <class Visit>
void for_compute(const Schedule& schedule, const Timeline& timeline, Visit visit) {
  for (std::size_t stage = 0; stage < schedule.actions.size(); ++stage) {
    for (std::size_t i = 0; i < schedule.actions[stage].size(); ++i) {
      const Span span = timeline.spans[stage][i];
      if (is_compute(schedule.actions[stage][i].kind) && span.end > span.start)
        visit(schedule.actions[stage][i], span);
    }
  }
}

std::vector<Row> tick_rows(const Schedule& schedule, const Timeline& timeline, double tick) {
  const auto ticks = static_cast<std::size_t>(std::lround(timeline.makespan / tick));
  std::vector<Row> rows(schedule.actions.size(), Row(ticks, {".", Kind::step}));
  for_compute(schedule, timeline, [&](const Action& action, Span span) {
    const auto first = static_cast<std::size_t>(std::lround(span.start / tick));
    const auto last = static_cast<std::size_t>(std::lround(span.end / tick));
    Row& row = rows[static_cast<std::size_t>(action.stage)];
    for (std::size_t i = first; i < last; ++i) row[i] = {i == first ? to_text(action) : "=", action.kind};
  });
  return rows;
}

std::vector<Row> column_rows(const Schedule& schedule, const Timeline& timeline) {
  const double column = timeline.makespan / kColumns;
  std::vector<Row> rows(schedule.actions.size(), Row(kColumns, {".", Kind::step}));
  std::vector<std::vector<double>> most(schedule.actions.size(), std::vector<double>(kColumns, column / 2));
  for_compute(schedule, timeline, [&](const Action& action, Span span) {
    const auto stage = static_cast<std::size_t>(action.stage);
    const int end = std::min(kColumns, static_cast<int>(std::ceil(span.end / column)));
    for (int i = static_cast<int>(span.start / column); i < end; ++i) {
      const double covered = std::min(span.end, (i + 1) * column) - std::max(span.start, i * column);
      double& best = most[stage][static_cast<std::size_t>(i)];
      if (covered < best) continue;
      best = covered;
      rows[stage][static_cast<std::size_t>(i)] = {to_text(action).substr(0, 1), action.kind};
    }
  });
  return rows;
}

std::string row_text(const Row& row, std::size_t width, bool colour) {
  std::string text;
  for (const Cell& cell : row) {
    const std::string padded =
        cell.text + std::string(width - cell.text.size(), cell.text == "=" ? '=' : ' ');
    text += colour ? colour_of(cell.kind) + padded + "\x1b[0m" : padded;
  }
  while (!text.empty() && text.back() == ' ') text.pop_back();
  return text + '\n';
}

std::size_t width_of(const std::vector<Row>& rows) {
  std::size_t width = 0;
  for (const Row& row : rows) {
    for (const Cell& cell : row) width = std::max(width, cell.text.size());
  }
  return width;
}

std::string label(const std::string& text) {
  return text + std::string(10 - std::min<std::size_t>(9, text.size()), ' ');
}

}  // namespace

double tick_of(const Schedule& schedule, const Timeline& timeline) {
  double shortest = std::numeric_limits<double>::infinity();
  for_compute(schedule, timeline, [&](const Action& /*action*/, Span span) {
    shortest = std::min(shortest, span.end - span.start);
  });
  if (std::isinf(shortest)) return 0;  // no action takes time
  for (int part = 1; part <= 12; ++part) {
    const double tick = shortest / part;
    bool all = true;
    for_compute(schedule, timeline, [&](const Action& /*action*/, Span span) {
      all = all && is_multiple(span.start, tick) && is_multiple(span.end, tick);
    });
    if (all) return tick;
  }
  return 0;
}

std::string timeline_text(const Schedule& schedule, const Timeline& timeline, bool colour) {
  const double tick = tick_of(schedule, timeline);
  const bool ticks = tick > 0 && timeline.makespan / tick <= kMostTicks;
  if (timeline.makespan <= 0) return "nothing takes any time\n";
  const std::vector<Row> rows = ticks ? tick_rows(schedule, timeline, tick) : column_rows(schedule, timeline);
  const std::size_t width = ticks ? std::max<std::size_t>(3, width_of(rows) + 1) : 1;
  std::string text;
  if (ticks) {
    Row times;
    for (std::size_t i = 0; i < rows.front().size(); ++i) times.push_back({std::to_string(i), Kind::step});
    text += label("time") + row_text(times, width, false);
  }
  for (std::size_t stage = 0; stage < rows.size(); ++stage) {
    text += label("stage " + std::to_string(stage)) + row_text(rows[stage], width, colour);
  }
  if (ticks && tick != 1) text += "one column is " + number_text(tick, 6) + " of time\n";
  if (!ticks) text += "one column is " + number_text(timeline.makespan / kColumns, 6) + " of time\n";
  return text;
}

}  // namespace sc::pipedream
