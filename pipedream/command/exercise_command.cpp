// Checks the exercises of pipedream/README.md. The shipped files are unsolved; exercises/solution/ has solved
// ones.
#include <algorithm>
#include <map>

#include "pipedream/check.h"
#include "pipedream/command/flags.h"
#include "pipedream/command/report.h"
#include "pipedream/command/text.h"
#include "pipedream/error.h"
#include "pipedream/json_input.h"
#include "pipedream/messages.h"
#include "pipedream/schedule_file.h"

namespace sc::pipedream {

namespace {

std::string trimmed(std::string lines) {
  while (!lines.empty() && lines.back() == '\n') lines.pop_back();
  return lines;
}

/// The error for an unsolved exercise, with what is still missing.
InputError not_solved(const std::string& exercise, const std::string& what, const std::string& hint) {
  return {ExitCode::data, "exercise " + exercise, "not solved yet: " + what, hint};
}

constexpr const char* kWrite = "write_a_schedule";
constexpr const char* kBreak = "break_the_send_order";
constexpr const char* kPredict = "predict_the_version";
constexpr const char* kChoose = "choose_the_microbatches";

// Checks a learner's schedule: it has 3 stages and 4 microbatches, passes all checks, is as fast as 1F1B and
// holds no more activations.
std::string write_a_schedule(const std::string& path) {
  const Schedule schedule = read_schedule(path);
  if (schedule.stages != 3 || schedule.microbatches != 4 || schedule.chunks != 1) {
    throw not_solved(kWrite, "the schedule is for other numbers than 3 stages, 4 microbatches, 1 chunk",
                     "leave these three keys as they were");
  }
  const CheckReport report = check(schedule);
  if (!report.ok())
    throw not_solved(kWrite, "it breaks a rule\n" + trimmed(findings_text(report)),
                     "mend the first line first");
  for (int stage = 0; stage < 3; ++stage) {
    const int held = report.stages[static_cast<std::size_t>(stage)].activations;
    if (held <= 3 - stage) continue;
    throw not_solved(kWrite,
                     "stage " + std::to_string(stage) + " holds " + std::to_string(held) + " activations, " +
                         std::to_string(3 - stage) + " are allowed",
                     "after S - s forwards, a stage does a backward before its next forward");
  }
  const double makespan = simulate(schedule, {}).makespan;
  if (makespan > 18) {
    throw not_solved(kWrite, "it takes " + number_text(makespan) + ", 18 are possible",
                     "see with 'pipedream draw --file' where a stage waits, and for what");
  }
  return "it passes, holds 3, 2, 1 activations and takes " + number_text(makespan);
}

std::vector<Action> sorted(std::vector<Action> actions) {
  std::sort(actions.begin(), actions.end(),
            [](const Action& a, const Action& b) { return to_text(a) < to_text(b); });
  return actions;
}

// Checks that the shipped schedule had sends or receives moved so that it deadlocks, and has no other
// violation.
std::string break_the_send_order(const std::string& path) {
  const Schedule schedule = read_schedule(path);
  const Schedule original = generate({.family = Family::one_f_one_b, .stages = 3, .microbatches = 3});
  const bool same_compute = without_messages(schedule).actions == without_messages(original).actions;
  for (std::size_t stage = 0; stage < original.actions.size() && same_compute; ++stage) {
    if (sorted(schedule.actions[stage]) == sorted(original.actions[stage])) continue;
    throw not_solved(kBreak, "a message of stage " + std::to_string(stage) + " is missing or new",
                     "move messages, do not change them");
  }
  if (!same_compute)
    throw not_solved(kBreak, "the compute actions have changed", "move sends and receives only");
  const CheckReport report = check(schedule);
  const bool deadlock = std::all_of(report.violations.begin(), report.violations.end(),
                                    [](const Violation& v) { return v.rule == Rule::deadlock; });
  if (report.ok()) {
    throw not_solved(kBreak, "there is no deadlock",
                     "let a stage post a receive only after a send whose receiver waits for it");
  }
  if (!deadlock)
    throw not_solved(kBreak, "it breaks other rules\n" + trimmed(findings_text(report)),
                     "keep the order of each pair's messages the same on both sides");
  return "a ring of " + std::to_string(report.cycle.size()) + " stages:\n" + trimmed(findings_text(report));
}

// A learner's answer: a whole number, or null if it is missing.
int answer(const JsonNode& node, const std::string& exercise, const std::string& hint) {
  if (node.value().is_null()) throw not_solved(exercise, node.name() + " has no answer", hint);
  return node.small();
}

int version_of(const Schedule& schedule, int stage, const std::string& action, const std::string& where) {
  const Action asked = parse_action(action, stage, where);
  for (const Action& a : schedule.actions.at(static_cast<std::size_t>(stage))) {
    if (a.kind == asked.kind && a.microbatch == asked.microbatch) return a.version;
  }
  throw InputError(ExitCode::data, where, "there is no " + action, "leave the questions as they were");
}

std::string predict_the_version(const std::string& path) {
  constexpr const char* kHint =
      "count the steps that lie behind the microbatch's forward on that stage, or on stage 0";
  return of_text(read_text(path), path, [](const JsonNode& node) {
    const std::vector<JsonNode> questions = node["questions"].elements();
    for (const JsonNode& q : questions) {
      GenerateOptions options{.family = Family::pipedream, .microbatches = 8};
      if (!rule_from_name(q["versions"].text(), options.versions))
        q["versions"].must_be("none, stash, vertical_sync or two_buffers");
      const auto stage = static_cast<int>(q["stage"].integer(0, options.stages - 1));
      const int right = version_of(generate(options), stage, q["action"].text(), q.name());
      if (answer(q["version"], kPredict, kHint) != right)
        throw not_solved(kPredict, q["version"].name() + " is wrong", kHint);
    }
    if (questions.size() < 6) throw not_solved(kPredict, "there are six questions", "restore them");
    return "all " + std::to_string(questions.size()) + " versions are right";
  });
}

// The least M that keeps four stages busy 90 % of the time; for interleaved a multiple of the stages.
int least_microbatches(Family family) {
  const bool interleaved = family == Family::interleaved;
  GenerateOptions options{
      .family = family, .microbatches = interleaved ? 4 : 1, .chunks = interleaved ? 2 : 1};
  while (simulate(generate(options), {}).utilization < 0.9) options.microbatches += interleaved ? 4 : 1;
  return options.microbatches;
}

std::string choose_the_microbatches(const std::string& path) {
  constexpr const char* kHint =
      "the bubble's share is (S - 1) / (v M + S - 1) for gpipe (v = 1) and interleaved; for zb_h1, whose "
      "stages "
      "idle a third of that time, (S - 1) / (3 M + S - 1)";
  return of_text(read_text(path), path, [](const JsonNode& node) -> std::string {
    for (const Family family : {Family::gpipe, Family::interleaved, Family::zb_h1}) {
      const std::string key(name_of(family));
      const int chosen = answer(node[key], kChoose, kHint);
      if (chosen == least_microbatches(family)) continue;
      throw not_solved(
          kChoose, key + ": " + std::to_string(chosen) + " is not the least number of microbatches", kHint);
    }
    return "these are the least numbers of microbatches for 90 %";
  });
}

}  // namespace

int exercise_command(const std::vector<std::string>& arguments, const Console& console) {
  using Checker = std::string (*)(const std::string&);
  static const std::map<std::string, Checker> checkers = {{kWrite, write_a_schedule},
                                                          {kBreak, break_the_send_order},
                                                          {kPredict, predict_the_version},
                                                          {kChoose, choose_the_microbatches}};
  Flags flags("exercise", "checks an exercise of pipedream/README.md; exit 65 until it is solved");
  flags.add("name", "write_a_schedule, break_the_send_order, predict_the_version or choose_the_microbatches",
            kWrite);
  flags.add("file", "your answer, unless it is pipedream/exercises/<name>.json");
  if (flags.parse(arguments, console)) return 0;
  const std::string name = flags.text("name");
  const auto found = checkers.find(name);
  if (found == checkers.end()) {
    throw InputError(
        ExitCode::usage, "pipedream exercise --name", "there is no exercise '" + name + "'",
        "choose write_a_schedule, break_the_send_order, predict_the_version or choose_the_microbatches");
  }
  const std::string what =
      found->second(flags.given("file") ? flags.text("file") : "pipedream/exercises/" + name + ".json");
  console.out << name << ": solved: " << what << '\n';
  return 0;
}

}  // namespace sc::pipedream
