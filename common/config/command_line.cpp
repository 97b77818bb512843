#include "common/config/command_line.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <initializer_list>
#include <map>
#include <stdexcept>

#include "common/base/check.h"
#include "common/base/text.h"
#include "common/config/flags.h"
#include "common/config/other_names.h"

namespace sc {
namespace {

constexpr const char* kArguments = "--help lists the flags and their arguments";

[[noreturn]] void refuse(const std::string& where, const std::string& what, const std::string& fix) {
  throw InputError(ExitCode::usage, where, what, fix);
}

void refuse_unknown(const std::vector<std::string>& unmatched, const std::vector<Flag>& flags) {
  if (unmatched.empty()) return;
  const auto dashed =
      std::find_if(unmatched.begin(), unmatched.end(), [](const std::string& s) { return s[0] == '-'; });
  const std::string& word = dashed == unmatched.end() ? unmatched.front() : *dashed;
  if (dashed == unmatched.end())
    refuse("\"" + word + "\"", "not a flag; every argument belongs to one", "--help lists the flags");
  if (word.rfind("-n", 0) == 0)
    refuse(word, "the number of ranks is run.sh's flag", "run.sh -n 2, or mpirun -n 2 <program>");
  std::vector<std::string> names;
  for (const Flag& flag : flags) names.push_back("--" + flag.name);
  const std::string name = word.substr(0, word.find('='));
  if (const std::string ours = ours_for(name); !ours.empty())
    refuse(name, "it is a flag of other programs", ours);
  const std::string near = nearest(name, names);
  refuse(name, "there is no such flag" + (near.empty() ? "" : "; did you mean " + near + "?"),
         "--help lists the flags");
}

void refuse_bad_arguments(const std::vector<Given>& given) {
  std::map<std::string, std::string> seen;
  for (const Given& flag : given) {
    if (flag.value.empty()) refuse("--" + flag.name, "its argument is empty", kArguments);
    if (flag.value.rfind("--", 0) == 0) {
      refuse("--" + flag.name, "its argument is missing: \"" + flag.value + "\" follows", kArguments);
    }
    if (flag.name == "set") continue;
    const auto [first, is_new] = seen.emplace(flag.name, flag.value);
    if (!is_new && first->second != flag.value) {
      refuse(flag.where(), "--" + flag.name + " is also given as \"" + first->second + "\"",
             "remove one of them");
    }
  }
}

struct Contradiction {
  bool holds;
  std::string where, what, fix;
};

/// Throws for the first contradiction whose condition holds.
void refuse_one_of(std::initializer_list<Contradiction> contradictions) {
  for (const auto& [holds, where, what, fix] : contradictions)
    if (holds) refuse(where, what, fix);
}

// Refuses checkpoint flags of a run that saves or resumes nothing, because they would have no effect.
void refuse_idle_checkpoint_flags(const std::vector<Given>& given, const CheckpointFlags& checkpoints) {
  const bool saves = checkpoints.every > 0, resumes = !checkpoints.resume.empty();
  for (const auto& [name, value] : given)
    refuse_one_of({{!saves && (name == "keep" || name == "save-async" || name == "crash-at"), "--" + name,
                    "this run saves nothing", "add --save-every STEPS"},
                   {!saves && !resumes && name == "checkpoints", "--checkpoints",
                    "this run neither saves nor resumes", "add --save-every STEPS, or --resume latest"},
                   {!resumes && name == "resume-with", "--resume-with", "this run does not resume",
                    "add --resume DIR or --resume latest"}});
}

void refuse_contradictions(const std::vector<Given>& given, const CommandLine& line) {
  refuse_one_of({{line.graph == true && (line.share_gpu || line.profile), "--graph on",
                  line.profile ? "--profile looks at single operations, which a graph hides"
                               : "ranks that share a GPU cannot capture their communication",
                  "--graph off"},
                 {line.transport && line.share_gpu, "--transport",
                  "ranks that share a GPU send through the host", "leave one of them out"}});
  refuse_idle_checkpoint_flags(given, line.checkpoints);
  const auto without_text = [&](const char* flag) {
    return line.evaluation.sample.value_or(0) == 0 &&
           std::ranges::find(given, flag, &Given::name) != given.end();
  };
  refuse_one_of(
      {{without_text("prompt"), "--prompt", "this run makes no text", "add --sample N"},
       {without_text("temperature"), "--temperature", "this run makes no text", "add --sample N"},
       {!line.init.empty() && !line.checkpoints.resume.empty(), "--init",
        "the checkpoint has the weights already", "leave out --init or --resume"},
       {line.brief && (line.profile || !line.compare.empty()), "--brief",
        fmt::format("it leaves out what {} is there to show", line.profile ? "--profile" : "--compare"),
        "leave one of them out"},
       {line.brief && (line.verbose || line.json), "--brief",
        fmt::format("{} prints more than three lines", line.verbose ? "--verbose" : "--json"),
        "leave one of them out"},
       {line.profile && line.share_gpu, "--profile",
        "it measures what operations take alone, and ranks that share a GPU never are",
        "leave out --share-gpu"},
       {line.json && !line.plan, "--json", "it is how --plan prints", "--plan --json"},
       {line.strict && !line.plan, "--strict", "a run refuses what it cannot do anyway", "--plan --strict"},
       {line.world != 0 && !line.plan, fmt::format("--world {}", line.world),
        "it belongs to --plan; a run has as many ranks as were started",
        fmt::format("add --plan, or start the ranks: run.sh -n {}", line.world)}});
}

}  // namespace

CommandLine parse_command_line(int argc, const char* const* argv, const Program& program) {
  const std::vector<Flag> flags = all_flags(program);
  std::vector<std::pair<std::string, bool>> names;
  for (const Flag& flag : flags) names.emplace_back(flag.name, flag.argument.empty());
  const auto [given, unmatched] = command_words(argc, argv, names, kArguments);
  refuse_unknown(unmatched, flags);
  refuse_bad_arguments(given);
  CommandLine line;
  line.sources = {program.workload_file, program.strategy_file, {}};
  const auto known = [&](const Given& flag) { return *std::ranges::find(flags, flag.name, &Flag::name); };
  for (const Given& flag : given) {
    const Flag flag_of = known(flag);
    if (!flag_of.apply && flag_of.key.empty()) throw std::logic_error("nobody reads the flag --" + flag.name);
    if (flag_of.apply)
      flag_of.apply(flag, line);
    else
      line.sources.settings.push_back({flag_of.key, flag.value, flag.where()});
  }
  if (line.help) return line;
  for (const Given& flag : given)
    if (line.plan && !line.strict && known(flag).of_a_run)
      refuse("--" + flag.name, "it belongs to a run; --plan only predicts one", "leave one of them out");
  refuse_contradictions(given, line);
  return line;
}

}  // namespace sc
