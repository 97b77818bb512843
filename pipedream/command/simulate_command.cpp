#include <cmath>

#include "pipedream/check.h"
#include "pipedream/command/flags.h"
#include "pipedream/command/report.h"
#include "pipedream/command/text.h"
#include "pipedream/command/timeline_text.h"
#include "pipedream/formulas.h"
#include "pipedream/schedule_file.h"

namespace sc::pipedream {

namespace {

std::string stage_table(const Schedule& schedule, const Timeline& timeline, bool bytes) {
  std::vector<std::vector<std::string>> rows = {{"stage", "busy", "idle", "steady idle", "activations",
                                                 "versions", "receive buffers", "messages sent"}};
  if (bytes) {
    for (const char* name : {"activation bytes", "weight bytes", "receive bytes"})
      rows.front().emplace_back(name);
  }
  const std::vector<StageCounts> counts = count(schedule);
  for (std::size_t stage = 0; stage < counts.size(); ++stage) {
    const StageUse& use = timeline.stages[stage];
    const StageCounts& c = counts[stage];
    rows.push_back({std::to_string(stage), number_text(use.busy), percent_text(use.idle_share),
                    share_text(use.steady_idle), std::to_string(c.activations), std::to_string(c.versions),
                    std::to_string(c.receive_buffers), std::to_string(c.sends)});
    if (!bytes) continue;
    for (const double value : {use.activation_bytes, use.weight_bytes, use.receive_bytes}) {
      rows.back().push_back(bytes_text(value));
    }
  }
  return table_text(rows);
}

// Every action with its start and end.
std::string spans_csv(const Schedule& schedule, const Timeline& timeline) {
  std::string text = "stage,action,start,end\n";
  for (std::size_t stage = 0; stage < schedule.actions.size(); ++stage) {
    for (std::size_t i = 0; i < schedule.actions[stage].size(); ++i) {
      const Span span = timeline.spans[stage][i];
      text += std::to_string(stage) + ',' + to_text(schedule.actions[stage][i]) + ',' +
              number_text(span.start, 9) + ',' + number_text(span.end, 9) + '\n';
    }
  }
  return text;
}

// The formula holds for equal stages and free messages; nothing is said otherwise.
std::string formula_line(const GenerateOptions& options, const Costs& costs) {
  const bool free =
      costs.latency == 0 && ((costs.bandwidth == 0 && costs.bandwidths.empty()) || costs.message_bytes == 0);
  if (costs.times.size() != 1 || costs.times.front().step != 0 || !free) return "";
  const std::optional<double> makespan = formula_makespan(options, costs.times.front());
  if (!makespan) return "closed formula: none for these numbers\n";
  return "closed formula: makespan " + number_text(*makespan) + "\n";
}

}  // namespace

int simulate_command(const std::vector<std::string>& arguments, const Console& console) {
  Flags flags("simulate", "clocks a schedule: start and end of every action, idle time, memory");
  flags.add_schedule();
  flags.add_costs();
  flags.add_colour();
  flags.add("spans", "writes start and end of every action to this .csv file");
  if (flags.parse(arguments, console)) return 0;
  GenerateOptions options;
  bool generated = false;
  const Schedule schedule = flags.schedule(options, generated);
  if (const int code = refuse_broken(schedule, console); code != 0) return code;
  const Costs costs = flags.costs();
  const Timeline timeline = simulate(schedule, costs);
  console.out << headline(schedule) << timeline_text(schedule, timeline, flags.colour(console)) << "makespan "
              << number_text(timeline.makespan) << ", utilisation " << percent_text(timeline.utilization)
              << ", idle " << percent_text(1 - timeline.utilization) << '\n';
  if (generated) console.out << formula_line(options, costs);
  const bool bytes = flags.given("costs") || flags.given("activation-bytes") || flags.given("weight-bytes");
  console.out << '\n' << stage_table(schedule, timeline, bytes);
  if (flags.given("spans")) write_text(flags.text("spans"), spans_csv(schedule, timeline));
  return 0;
}

}  // namespace sc::pipedream
