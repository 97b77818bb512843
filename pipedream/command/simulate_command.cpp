#include <optional>

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

// All actions with their start and end, as CSV.
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

// Whether the formulas hold: they do for equal stages and free messages only.
bool formulas_hold(const Costs& costs) {
  const bool free =
      costs.latency == 0 && ((costs.bandwidth == 0 && costs.bandwidths.empty()) || costs.message_bytes == 0);
  return costs.times.size() == 1 && costs.times.front().step == 0 && free;
}

std::string formula_line(const GenerateOptions& options, const Costs& costs) {
  if (!formulas_hold(costs)) return "";
  const std::optional<double> makespan = formula_makespan(options, costs.times.front());
  if (!makespan) return "closed formula: none for these numbers\n";
  return "closed formula: makespan " + number_text(*makespan) + "\n";
}

// What a stage holds, one entry for each moment at which that changes: [time, sets of activations, weight
// versions].
std::string alive_json(const std::vector<Action>& list, const std::vector<Span>& spans) {
  std::string text = "[[0, 0, 1]";
  int activations = 0, versions = 1;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const Kind kind = list[i].kind;
    const bool begins = kind == Kind::forward;
    activations += begins ? 1 : ends_microbatch(kind) ? -1 : 0;
    versions += kind == Kind::stash ? 1 : kind == Kind::drop ? -1 : 0;
    if (!begins && !ends_microbatch(kind) && kind != Kind::stash && kind != Kind::drop) continue;
    text += ", [" + number_text(begins ? spans[i].start : spans[i].end, 9) + ", " +
            std::to_string(activations) + ", " + std::to_string(versions) + "]";
  }
  return text + "]";
}

std::string spans_json(const std::vector<Action>& list, const std::vector<Span>& spans) {
  std::string text = "[";
  for (std::size_t i = 0; i < list.size(); ++i)
    text += (i == 0 ? "[\"" : ", [\"") + to_text(list[i]) + "\", \"" + std::string(name_of(list[i].kind)) +
            "\", " + std::to_string(list[i].microbatch) + ", " + number_text(spans[i].start, 9) + ", " +
            number_text(spans[i].end, 9) + "]";
  return text + "]";
}

std::string or_null(std::optional<double> number) { return number ? number_text(*number, 9) : "null"; }

std::string stages_json(const Schedule& schedule, const Timeline& timeline) {
  const std::vector<StageCounts> counts = count(schedule);
  std::string text;
  for (std::size_t stage = 0; stage < counts.size(); ++stage) {
    const StageUse& use = timeline.stages[stage];
    const StageCounts& c = counts[stage];
    const std::vector<Action>& list = schedule.actions[stage];
    text += std::string(stage == 0 ? "" : ",\n") + "    {\"busy\": " + number_text(use.busy, 9) +
            ", \"idle\": " + number_text(use.idle_share, 9) +
            ", \"steady_idle\": " + or_null(use.steady_idle) +
            ", \"activations\": " + std::to_string(c.activations) +
            ", \"versions\": " + std::to_string(c.versions) +
            ", \"versions_allowed\": " + std::to_string(versions_allowed(schedule, static_cast<int>(stage))) +
            ", \"receive_buffers\": " + std::to_string(c.receive_buffers) +
            ", \"messages\": " + std::to_string(c.sends) + ", \"steps\": " + std::to_string(c.steps) +
            ",\n     \"spans\": " + spans_json(list, timeline.spans[stage]) +
            ",\n     \"alive\": " + alive_json(list, timeline.spans[stage]) + "}";
  }
  return text;
}

// The timeline as JSON. The idle share of the formula uses its makespan, with the schedule's busy time.
std::string timeline_json(const Schedule& schedule, const Timeline& timeline, std::optional<double> formula) {
  double busy = 0;
  for (const StageUse& use : timeline.stages) busy += use.busy;
  std::optional<double> idle;
  if (formula && *formula > 0) idle = 1 - busy / (*formula * schedule.stages);
  return "{\n  \"simulated\": true,\n  \"schedule\": \"" + schedule.name +
         "\",\n  \"stages\": " + std::to_string(schedule.stages) +
         ",\n  \"microbatches\": " + std::to_string(schedule.microbatches) +
         ",\n  \"chunks\": " + std::to_string(schedule.chunks) + ",\n  \"versions\": \"" +
         std::string(name_of(schedule.versions)) +
         "\",\n  \"makespan\": " + number_text(timeline.makespan, 9) +
         ",\n  \"idle\": " + number_text(1 - timeline.utilization, 9) +
         ",\n  \"formula_makespan\": " + or_null(formula) + ",\n  \"formula_idle\": " + or_null(idle) +
         ",\n  \"per_stage\": [\n" + stages_json(schedule, timeline) + "\n  ]\n}\n";
}

}  // namespace

int simulate_command(const std::vector<std::string>& arguments, const Console& console) {
  Flags flags("simulate", "clocks a schedule: start and end of every action, idle time, memory");
  flags.add_schedule();
  flags.add_costs();
  flags.add_colour();
  flags.add("spans", "writes start and end of every action to this .csv file");
  flags.add("json", "writes all of it, and what stages hold when, to this file");
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
  if (!flags.given("json")) return 0;
  std::optional<double> formula;
  if (generated && formulas_hold(costs)) formula = formula_makespan(options, costs.times.front());
  write_text(flags.text("json"), timeline_json(schedule, timeline, formula));
  return 0;
}

}  // namespace sc::pipedream
