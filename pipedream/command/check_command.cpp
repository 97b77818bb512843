#include "pipedream/command/flags.h"
#include "pipedream/command/report.h"
#include "pipedream/command/text.h"
#include "pipedream/error.h"
#include "pipedream/schedule_file.h"

namespace sc::pipedream {

std::string headline(const Schedule& schedule) {
  std::string text = schedule.name + ": " + count_text(schedule.stages, "stage") + ", " +
                     count_text(schedule.microbatches, "microbatch") + ", ";
  if (schedule.chunks > 1) text += std::to_string(schedule.chunks) + " chunks a stage, ";
  ((text += "versions ") += name_of(schedule.versions)) += " (simulated)\n";
  return text;
}

std::string findings_text(const CheckReport& report) {
  std::string text;
  for (const Violation& violation : report.violations) text += to_text(violation) + '\n';
  if (report.more > 0) text += "and " + std::to_string(report.more) + " more\n";
  for (const Wait& wait : report.cycle) text += "  " + to_text(wait) + '\n';
  return text;
}

int refuse_broken(const Schedule& schedule, const Console& console) {
  const CheckReport report = check(schedule);
  if (report.ok()) return 0;
  console.err
      << findings_text(report) << "error: schedule " << schedule.name << " breaks "
      << (report.violations.size() == 1 ? "a rule" : "rules")
      << "\n  fix: mend the first line above first; docs: pipedream/README.md, \"What the checker proves\"\n";
  return static_cast<int>(ExitCode::data);
}

namespace {

std::string counts_table(const Schedule& schedule, const CheckReport& report) {
  std::vector<std::vector<std::string>> rows = {{"stage", "actions", "activations", "versions", "allowed",
                                                 "receive buffers", "messages sent", "steps"}};
  for (std::size_t stage = 0; stage < report.stages.size(); ++stage) {
    const StageCounts& c = report.stages[stage];
    rows.push_back({std::to_string(stage), std::to_string(schedule.actions[stage].size()),
                    std::to_string(c.activations), std::to_string(c.versions),
                    std::to_string(versions_allowed(schedule, static_cast<int>(stage))),
                    std::to_string(c.receive_buffers), std::to_string(c.sends), std::to_string(c.steps)});
  }
  return table_text(rows);
}

}  // namespace

int check_command(const std::vector<std::string>& arguments, const Console& console) {
  Flags flags(
      "check",
      "proves a schedule: order, messages, no deadlock, weight versions; exit 65 if it breaks a rule");
  flags.add_schedule();
  flags.add("write", "also writes the schedule to this .csv or .json file");
  flags.add_switch("list", "also prints every stage's actions");
  if (flags.parse(arguments, console)) return 0;
  GenerateOptions options;
  bool generated = false;
  const Schedule schedule = flags.schedule(options, generated);
  if (flags.given("write")) {
    const std::string path = flags.text("write");
    const bool csv = path.ends_with(".csv");
    if (!csv && !path.ends_with(".json")) {
      throw InputError(ExitCode::usage, path, "is neither .csv nor .json", "choose one of these endings");
    }
    write_text(path, csv ? to_csv(schedule) : to_json(schedule));
  }
  for (std::size_t stage = 0; stage < schedule.actions.size() && flags.on("list"); ++stage) {
    console.out << "stage " << stage << ": " << to_text(schedule.actions[stage]) << '\n';
  }
  if (const int code = refuse_broken(schedule, console); code != 0) return code;
  console.out << schedule.name << ": complete, ordered, every send meets its receive, no deadlock, versions "
              << name_of(schedule.versions) << '\n'
              << counts_table(schedule, check(schedule));
  return 0;
}

}  // namespace sc::pipedream
