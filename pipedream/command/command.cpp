#include "pipedream/command/command.h"

#include <map>

#include "pipedream/error.h"

namespace sc::pipedream {

namespace {

using Function = int (*)(const std::vector<std::string>&, const Console&);

const std::map<std::string, Function>& commands() {
  static const std::map<std::string, Function> all = {
      {"simulate", simulate_command}, {"check", check_command},         {"draw", draw_command},
      {"compare", compare_command},   {"partition", partition_command}, {"explain", explain_command},
      {"exercise", exercise_command}};
  return all;
}

constexpr const char* kUsage =
    "pipedream: pipeline schedules as data, on no rank and no GPU\n"
    "\n"
    "  pipedream simulate    clock a schedule: timeline, idle time, memory\n"
    "  pipedream check       prove a schedule: order, messages, no deadlock, weight versions\n"
    "  pipedream draw        draw it, in the terminal or as SVG\n"
    "  pipedream compare     all schedules in one table; --against-zero: bytes sent beside ZeRO-3\n"
    "  pipedream partition   cut a model into stages\n"
    "  pipedream explain     tell a schedule in words, t0, t1, ...\n"
    "  pipedream exercise    check an answer to one of the tutorial's exercises\n"
    "\n"
    "All without flags: 4 stages, 4 microbatches, 1f1b. Each has --help. Tutorial: pipedream/README.md\n"
    "Exit codes: 0, 64 wrong flags, 65 a wrong file or a schedule that breaks a rule, 73 cannot write\n";

int dispatch(const std::vector<std::string>& arguments, const Console& console) {
  const std::string name = arguments.size() > 1 ? arguments[1] : "--help";
  if (name == "--help" || name == "-h" || name == "help") {
    console.out << kUsage;
    return 0;
  }
  const auto found = commands().find(name);
  if (found == commands().end()) {
    throw InputError(ExitCode::usage, "pipedream", "there is no command '" + name + "'",
                     "choose simulate, check, draw, compare, partition, explain or exercise");
  }
  return found->second({arguments.begin() + 1, arguments.end()}, console);
}

}  // namespace

int run_command(const std::vector<std::string>& arguments, const Console& console) {
  try {
    return dispatch(arguments, console);
  } catch (const InputError& error) {
    console.err << "error: " << error.what() << "\n  fix: " << error.fix() << '\n';
    return static_cast<int>(error.code());
  }
}

}  // namespace sc::pipedream
