#include "pipedream/check.h"
#include "pipedream/command/compare.h"
#include "pipedream/command/figures.h"
#include "pipedream/command/flags.h"
#include "pipedream/command/report.h"
#include "pipedream/command/svg.h"
#include "pipedream/command/text.h"
#include "pipedream/command/timeline_text.h"
#include "pipedream/error.h"
#include "pipedream/schedule_file.h"

namespace sc::pipedream {

namespace {

std::string described(const Schedule& schedule, const Timeline& timeline) {
  return "Simulated timeline of " + schedule.name + " on " + count_text(schedule.stages, "stage") + " with " +
         count_text(schedule.microbatches, "microbatch") + ": makespan " + number_text(timeline.makespan) +
         ", stages busy " + percent_text(timeline.utilization) + " of the time.";
}

std::string naive_pipeline() {
  const Schedule schedule = generate({.family = Family::naive});
  const Timeline timeline = simulate(schedule, {});
  TimelineFigure figure;
  figure.title =
      "Naive pipeline: one microbatch at a time, stages busy " + percent_text(timeline.utilization);
  figure.description = described(schedule, timeline) + " At any time one stage works and three wait.";
  return timeline_svg(schedule, timeline, figure);
}

// One half of GPipe: up to the end of the last forward, or from there on.
std::string microbatches(bool forward) {
  const Schedule schedule = generate({.family = Family::gpipe});
  const Timeline timeline = simulate(schedule, {});
  const double turn = 7;  // S + M - 1 forwards of one tick
  TimelineFigure figure;
  if (forward) {
    figure.end = turn;
    figure.title = "Microbatches forward: a stage starts when the one before has finished";
    figure.description = described(schedule, timeline) +
                         " Shown: the forwards, t0 to t6; stage s starts microbatch k at t(s + k).";
  } else {
    figure.begin = turn;
    figure.end = timeline.makespan;
    figure.title = "Microbatches backward: the last stage starts, each takes two ticks";
    figure.description =
        described(schedule, timeline) + " Shown: the backwards, from t7; stage 3 starts, stage 0 ends.";
  }
  return timeline_svg(schedule, timeline, figure);
}

std::string weight_versioning() {
  const Schedule schedule = generate({.family = Family::pipedream, .microbatches = 7});
  const Timeline timeline = simulate(schedule, {});
  TimelineFigure figure;
  figure.title = "PipeDream with stashed weights: backward reads what forward read";
  figure.show_versions = true;
  figure.description = described(schedule, timeline) + " Boxes are coloured by weight version.";
  const std::vector<StageCounts> counts = count(schedule);
  for (std::size_t stage = 0; stage < counts.size(); ++stage) {
    const std::string versions = std::to_string(counts[stage].versions);
    figure.row_notes.push_back(versions +
                               (counts[stage].versions == 1 ? " version alive" : " versions alive"));
    figure.description += " Stage " + std::to_string(stage) + " keeps " + versions + ".";
  }
  return timeline_svg(schedule, timeline, figure);
}

std::string utilization_comparison() {
  constexpr int kSeries[] = {4, 8, 16, 32};
  BarFigure figure;
  figure.title = "How busy four stages are, by schedule and number of microbatches";
  figure.description =
      "Simulated share of time that four stages are busy in four batches of 4, 8, 16 and 32 microbatches.";
  figure.note =
      "four batches of M microbatches; interleaved with 2 chunks; pipedream, 2bw: no draining between "
      "batches";
  for (const int m : kSeries) figure.series.push_back("M = " + std::to_string(m));
  for (const Family family : kFamilies) {
    BarGroup group;
    group.name = name_of(family);
    figure.description += ' ' + group.name + ':';
    for (const int m : kSeries) {
      const int chunks = family == Family::interleaved ? 2 : 1;
      const Comparison row =
          compare({.family = family, .microbatches = m, .batches = 4, .chunks = chunks}, {});
      group.shares.push_back(row.utilization);
      figure.description += ' ' + percent_text(row.utilization) + (m == 32 ? "." : ",");
    }
    figure.groups.push_back(group);
  }
  return bars_svg(figure);
}

void refuse_unread_by_draw(const Flags& flags) {
  flags.refuse_beside("figure", schedule_flags());
  flags.refuse_beside("figure", cost_flags());
  flags.refuse_beside("figure", {"show-versions", "color"});
  flags.refuse_beside("out", {"color"});
  flags.refuse_without("out", {"show-versions"});
}

}  // namespace

std::vector<std::string> figure_names() {
  return {"naive_pipeline", "microbatch_forward", "microbatch_backward", "weight_versioning",
          "utilization_comparison"};
}

std::string figure_svg(const std::string& name) {
  if (name == "naive_pipeline") return naive_pipeline();
  if (name == "microbatch_forward") return microbatches(true);
  if (name == "microbatch_backward") return microbatches(false);
  if (name == "weight_versioning") return weight_versioning();
  if (name == "utilization_comparison") return utilization_comparison();
  throw InputError(ExitCode::usage, "pipedream draw --figure", "there is no figure '" + name + "'",
                   "choose naive_pipeline, microbatch_forward, microbatch_backward, weight_versioning or "
                   "utilization_comparison");
}

int draw_command(const std::vector<std::string>& arguments, const Console& console) {
  Flags flags("draw", "a schedule's timeline, in the terminal or as SVG");
  flags.add_schedule();
  flags.add_costs();
  flags.add_colour();
  flags.add("figure",
            "one of the pages' figures: naive_pipeline, microbatch_forward, microbatch_backward, "
            "weight_versioning, utilization_comparison");
  flags.add("out", "writes SVG to this file; without it the terminal shows a timeline");
  flags.add_switch("show-versions", "SVG: colours by weight version");
  if (flags.parse(arguments, console)) return 0;
  refuse_unread_by_draw(flags);
  if (flags.given("figure")) {
    const std::string svg = figure_svg(flags.text("figure"));
    if (flags.given("out")) write_text(flags.text("out"), svg);
    if (!flags.given("out")) console.out << svg;
    return 0;
  }
  GenerateOptions options;
  bool generated = false;
  const Schedule schedule = flags.schedule(options, generated);
  if (const int code = refuse_broken(schedule, console); code != 0) return code;
  const Timeline timeline = simulate(schedule, flags.costs());
  if (!flags.given("out")) {
    console.out << headline(schedule) << timeline_text(schedule, timeline, flags.colour(console));
    return 0;
  }
  TimelineFigure figure;
  figure.title = schedule.name + ": stages busy " + percent_text(timeline.utilization);
  figure.description = described(schedule, timeline);
  figure.show_versions = flags.on("show-versions");
  write_text(flags.text("out"), timeline_svg(schedule, timeline, figure));
  return 0;
}

}  // namespace sc::pipedream
