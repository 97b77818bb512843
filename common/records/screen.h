// The default screen of a run: what it is to hold, and what it held. Pure functions from plans and records to
// text. No torch.
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

/// What shows the text. As it is made: a file, or a terminal of which nothing is known.
struct Look {
  bool utf8 = false;    // bars of blocks, else of "#" and "-"
  bool colour = false;  // ANSI escapes
};
/// Plain unless it is a terminal. Colours unless NO_COLOR is set or TERM is "dumb"; UTF-8 where the locale
/// (LC_ALL, else LC_CTYPE, else LANG) says so.
Look look_of(bool terminal, const Environment& variable);

/// "####", or with `empty` cells behind it "####------".
std::string bar(std::int64_t full, std::int64_t empty, Look look);
/// "PREDICTED": bold, where there are colours.
std::string heading(const std::string& text, Look look);

/// "8 P" of "4 P" and "4 P"; empty where they are not multiples of the same.
std::string sum_of_formulas(const std::vector<std::string>& formulas);

/// PREDICTED: bytes of a rank by purpose with bars, formulas where they are short, bytes at other places than
/// the device, and what a step sends. Where ranks differ: a line for each.
///   ranks  a line each, of those of a set that has the most
std::string format_predicted(const std::vector<RankPlan>& ranks, Look look);

/// What was checked and held, a line each.
///   replicas  how often they were compared and found equal; 0: there are none
std::string format_checks(const RankPlan& plan, Rank rank, const std::optional<AllocatorCheck>& allocator,
                          std::int64_t replicas, Look look);

/// Rows of a timetable; measured and simulated ones with a line for each stage, drawn over the same time as
/// pipedream draws them: in each column the action that takes most of it.
std::string format_timelines(const Timetable& timetable);
/// How many updates had been made since the weights with which each rank computed most of its gradients;
/// empty without versions.
std::string format_ages(const std::vector<VersionsRead>& versions);
/// Why stages wait where several share a core; empty where each has its own. has_pace: the lesson can give
/// each its own.
std::string format_crowd(std::int64_t ranks, std::int64_t cores, bool has_pace);

}  // namespace sc
