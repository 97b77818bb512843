#include "common/storage/checkpoint/command/options.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <array>

#include "common/base/check.h"
#include "common/base/command_words.h"
#include "common/base/flag_text.h"
#include "common/base/text.h"

namespace sc::checkpoint {
namespace {

constexpr const char* kHelp = R"(Shows, checks, compares and exports checkpoints

usage: checkpoint show DIR [--entries]
       checkpoint verify DIR
       checkpoint diff A B
       checkpoint export DIR OUT.safetensors [--dtype f32|bf16|f16] [--replace]

DIR, A and B are one checkpoint (step-000400) or a directory of them; diff, export and --entries then take the
newest that is whole.

  show     a table: step, lesson, world, bytes, what is saved
  verify   reads every byte and compares it with the check sums
  diff     weights and optimizer states of two checkpoints, whatever their strategies and worlds;
           ends with 0 if they are equal to the bit, 1 if not; pending work that only one has is named
  export   weights as Hugging Face's GPT-2 names and turns them: fp32 master if there is one, else parameters;
           refuses weights that are not finite (70)

  --dtype KIND   export: f32 (default), bf16 or f16
  --replace      export: overwrite OUT.safetensors
  --entries      show: which elements of each tensor lie in which file, by purpose
  --help         this text

examples:
  checkpoint verify runs/04_zero3/checkpoints
  checkpoint export runs/04_zero3/checkpoints/step-000400 model.safetensors --dtype bf16

exit codes: 0, 1 diff found differences, 64 command line, 65 a checkpoint is damaged or is none,
70 weights to export are not finite, 73 the output cannot be written
)";

struct Usage {
  const char* name;
  std::size_t paths;
  const char* example;
};
constexpr std::array<Usage, 4> kUsages = {{{"show", 1, "checkpoint show DIR"},
                                           {"verify", 1, "checkpoint verify DIR"},
                                           {"diff", 2, "checkpoint diff A B"},
                                           {"export", 2, "checkpoint export DIR OUT.safetensors"}}};

[[noreturn]] void refuse(const std::string& where, const std::string& what, const std::string& fix) {
  throw InputError(ExitCode::usage, where, what, fix);
}

constexpr const char* kHelpFix = "checkpoint --help";

std::vector<std::string> only_words(const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    if (word.empty()) refuse("command line", "an argument is empty", kHelpFix);
    if (word[0] == '-') refuse_flag(word, {"--dtype", "--replace", "--entries", "--help"}, kHelpFix);
  }
  return words;
}

const Usage& usage_of(const std::string& name) {
  std::vector<std::string> names;
  for (const Usage& usage : kUsages) {
    if (name == usage.name) return usage;
    names.emplace_back(usage.name);
  }
  const std::string near = nearest(name, names);
  refuse(name, "there is no such command" + (near.empty() ? "" : "; did you mean " + near + "?"),
         fmt::format("one of {}", fmt::join(names, ", ")));
}

DType dtype_of(const std::string& name) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    if (name == name_of(dtype)) return dtype;
  }
  refuse("--dtype " + name, "not a type that weights are exported in", "--dtype f32, bf16 or f16");
}

}  // namespace

std::optional<Options> parse_options(int argc, const char* const* argv) {
  const auto [given, words] = command_words(
      argc, argv, {{"dtype", false}, {"replace", true}, {"entries", true}, {"help", true}}, kHelpFix);
  const auto count = [&flags = given](const char* name) {
    return std::ranges::count(flags, name, &Given::name);
  };
  if (count("help") > 0) return std::nullopt;
  const std::vector<std::string> all = only_words(words);
  if (all.empty()) refuse("command line", "no command", "checkpoint show DIR, or checkpoint --help");
  const Usage& usage = usage_of(all.front());
  if (all.size() - 1 != usage.paths) {
    refuse("command line",
           fmt::format("{} takes {} path{}, not {}", usage.name, usage.paths, usage.paths == 1 ? "" : "s",
                       all.size() - 1),
           usage.example);
  }
  Options options{.command = usage.name, .paths = {all.begin() + 1, all.end()}};
  for (const auto& [flag, owner] :
       {std::pair{"dtype", "export"}, {"replace", "export"}, {"entries", "show"}}) {
    if (count(flag) == 0) continue;
    if (options.command != owner)
      refuse(fmt::format("--{}", flag), fmt::format("belongs to {}", owner), usage.example);
    if (count(flag) > 1) refuse(fmt::format("--{}", flag), "given twice", "give it once");
  }
  if (const auto dtype = std::ranges::find(given, "dtype", &Given::name); dtype != given.end())
    options.dtype = dtype_of(dtype->value);
  options.replace = count("replace") > 0;
  options.entries = count("entries") > 0;
  return options;
}

std::string help_text() { return kHelp; }

}  // namespace sc::checkpoint
