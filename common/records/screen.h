// The default screen of a run: what it will hold, and what it held, as pure functions from plans and records
// to text. No torch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/types.h"
#include "common/memory/plan.h"
#include "common/records/report.h"
#include "common/watch/comm_op.h"
#include "common/watch/launch.h"
#include "common/watch/timetable.h"

namespace sc {

/// What the terminal or file that shows the text can do; nothing by default.
struct Look {
  bool utf8 = false;    // bars of block characters instead of "#" and "-"
  bool colour = false;  // ANSI escapes
};
/// Nothing special unless on a `terminal`; there colours unless NO_COLOR is set or TERM is "dumb", and UTF-8
/// if the locale (LC_ALL, else LC_CTYPE, else LANG) says so.
Look look_of(bool terminal, const Environment& variable);

/// A bar, "####", or with `empty` cells after it "####------".
std::string bar(std::int64_t full, std::int64_t empty, Look look);
/// A word that begins a section, such as "PREDICTED", in bold if the terminal has colours.
std::string heading(const std::string& text, Look look);

/// Adds formulas that are multiples of the same: "8 P" for "4 P" and "4 P"; empty if they are not.
std::string sum_of_formulas(const std::vector<std::string>& formulas);

/// The section PREDICTED: bytes of a rank by purpose with bars, formulas if they are short, bytes at other
/// places than the device, and what a step sends. If ranks differ, a line per set of equal ranks.
std::string format_predicted(const std::vector<RankPlan>& ranks, Look look);

/// The lines about what was checked and held, one each. `replicas` counts how often replicas were compared
/// and found equal; 0: there are none.
std::string format_checks(const RankPlan& plan, Rank rank, const std::optional<AllocatorCheck>& allocator,
                          std::int64_t replicas, Look look);

/// The rows of a timetable as drawings. Measured and simulated ones have one line per stage, over the same
/// time as by pipedream: each column shows the action that takes most of it.
std::string format_timelines(const Timetable& timetable);
/// How many updates behind the newest weights most gradients of a rank are; empty without versions.
std::string format_ages(const std::vector<VersionsRead>& versions);
/// Why stages wait if several share a core; empty if each has its own. `has_pace`: the lesson can simulate
/// stages with cores of their own.
std::string format_crowd(std::int64_t ranks, std::int64_t cores, bool has_pace);

}  // namespace sc
