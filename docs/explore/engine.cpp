// Answers the questions of the page docs/explore/index.html as the programs themselves do: the plan of a
// lesson, choose and pipedream.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "common/base/check.h"
#include "common/base/control_group.h"
#include "common/input/printable.h"
#include "common/records/plan_json.h"
#include "common/run/planning.h"
#include "lessons/choose/command.h"
#include "lessons/plans.h"
#include "pipedream/command/command.h"

namespace {

using Words = std::vector<std::string>;

std::vector<const char*> pointers(const Words& words) {
  std::vector<const char*> argv;
  for (const std::string& word : words) argv.push_back(word.c_str());
  return argv;
}

// The parts of a lesson's main.cpp that a plan needs.
sc::Program program_of(const std::string& lesson) {
  sc::Program program;
  program.name = lesson;
  program.one_rank = lesson == "00_one_device";
  if (program.one_rank) program.ranks_flag = "--virtual-ranks";
  return program;
}

// Runs a lesson's program with --plan --json.
int plan(const Words& words, std::ostream& out) {
  const sc::Program program = program_of(words.front());
  const std::vector<const char*> argv = pointers(words);
  const sc::CommandLine line = sc::parse_command_line(static_cast<int>(argv.size()), argv.data(), program);
  const std::shared_ptr<const sc::Plans> defaults = sc::lesson_plans_of(program.name, {}).plans;
  const std::unique_ptr<sc::Plans> plans = defaults->with({});
  sc::ResolvedConfig config = sc::resolve(line.sources, plans->fields());
  const sc::detail::Prepared run = sc::detail::prepare(
      program, *plans, line, std::move(config), std::max<std::int64_t>(line.world, 1), sc::DeviceChoice::cpu);
  const std::vector<sc::RankPlan> ranks =
      sc::detail::exact_plans_of(*plans, run.shape, sc::detail::rank_plans_of(*plans, run.shape));
  out << sc::format_plan_json(program.name, run.shape, ranks, sc::detail::notes_of(run, line));
  return 0;
}

// Each key of a lesson: what it is by default, and what it means.
int keys(const Words& words, std::ostream& out) {
  const std::unique_ptr<sc::Plans> plans = sc::lesson_plans_of(words.back(), {}).plans->with({});
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const sc::Field& field : plans->fields().fields()) json[field.path] = {field.default_text, field.doc};
  out << json.dump();
  return 0;
}

sc::choose::Measured measured() {
  const std::ifstream file(sc::choose::kMeasured);
  std::ostringstream text;
  text << file.rdbuf();
  return sc::choose::Measured::parse(text.str(), sc::choose::kMeasured);
}

int answer(const Words& words, std::ostream& out, std::ostream& err) {
  const std::string& program = words.front();
  try {
    if (program == "pipedream") return sc::pipedream::run_command(words, {out, err});
    if (program == "keys") return keys(words, out);
    if (program != "choose") return plan(words, out);
    const std::vector<const char*> argv = pointers(words);
    return sc::choose::run_command(static_cast<int>(argv.size()), argv.data(), measured, out);
  } catch (const sc::InputError& error) {
    err << "error: " << sc::shown_message(error.what()) << '\n';
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    err << "error: " << sc::shown_message(error.what()) << '\n';
    return 1;
  }
}

}  // namespace

// Replaces common/base/control_group.cpp, because the page has no machine to inspect.
int sc::usable_cores(const std::string& /*top*/) { return 1; }

/// Runs the program in `text` ("04_zero3", "choose", "pipedream") with its arguments, separated by line ends;
/// "keys" and a lesson ask for its keys.
/// Files are those of the module's own file system.
///   Returns  {"code", "out", "err"} as JSON, to be freed.
extern "C" char* explore(const char* text) {
  Words words;
  std::istringstream lines(text);
  for (std::string word; std::getline(lines, word);) words.push_back(word);
  std::ostringstream out, err;
  const int code = answer(words, out, err);
  const nlohmann::json json = {{"code", code}, {"out", out.str()}, {"err", err.str()}};
  return ::strdup(json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
}
