#include "common/config/flags.h"

#include <spdlog/fmt/fmt.h>

#include <sstream>
#include <type_traits>
#include <utility>

#include "common/base/check.h"
#include "common/base/text.h"

namespace sc {
namespace {

constexpr std::pair<int, const char*> kExitTexts[] = {
    {static_cast<int>(ExitCode::ok), "the run finished and every prediction held"},
    {static_cast<int>(ExitCode::usage), "command line or configuration"},
    {static_cast<int>(ExitCode::data), "a data or weight file is not what it must be"},
    {static_cast<int>(ExitCode::missing),
     "a program, library, device or feature is missing, or memory does not suffice"},
    {static_cast<int>(ExitCode::claim), "a prediction did not hold, or a number was not finite"},
    {static_cast<int>(ExitCode::cannot_write), "records or weights cannot be written"},
    {static_cast<int>(ExitCode::lost_rank), "an operation hung, or a rank was lost"},
    {129, "hung up (SIGHUP)"},
    {130, "interrupted (SIGINT)"},
    {143, "terminated (SIGTERM)"},
};

std::string key_lines(const FieldSet& strategy) {
  std::vector<std::vector<std::string>> rows;
  for (const Field& field : strategy.fields()) {
    const std::string unit = field.unit.empty() ? "" : " [" + field.unit + "]";
    rows.push_back({field.path + "=" + field.default_text, field.allowed(), field.doc + unit});
  }
  return rows.empty() ? "  none\n" : table(rows);
}

/// Stores a flag's value in the command line's member to which the member pointers `way` lead (member_of).
template <class... Way>
Flag::Apply word(Way... way) {
  return [=](const Given& given, CommandLine& line) { member_of(line, way...) = given.value; };
}
template <class V, class... Way>
Flag::Apply value(const Codec<V>& codec, Way... way) {
  return [=](const Given& given, CommandLine& line) {
    try {
      auto& place = member_of(line, way...);
      place = static_cast<std::decay_t<decltype(place)>>(codec.parse({Value::Form::flag, given.value}));
    } catch (const FieldError& error) {
      const std::string allowed =
          codec.choices.empty() ? codec.range : fmt::format("{}", fmt::join(codec.choices, ", "));
      throw InputError(ExitCode::usage, given.where(), error.what(),
                       fmt::format("--{} takes {}", given.name, allowed));
    }
  };
}
Flag::Apply on(bool CommandLine::*place) {
  return [=](const Given& given, CommandLine& line) {
    if (given.value != "true")
      throw InputError(ExitCode::usage, given.where(), "a switch takes no value",
                       "--" + given.name + " alone");
    line.*place = true;
  };
}

void add_setting(const Given& given, CommandLine& line) {
  const auto equals = given.value.find('=');
  if (equals == std::string::npos || equals == 0)
    throw InputError(ExitCode::usage, given.where(), "key=value is expected", "e.g. --set batch.micro=2");
  line.sources.settings.push_back(
      {given.value.substr(0, equals), given.value.substr(equals + 1), given.where()});
}

void add_keys_that_may_differ(const Given& given, CommandLine& line) {
  std::istringstream in(given.value);
  for (std::string key; std::getline(in, key, ',');) line.checkpoints.may_differ.push_back(key);
}

}  // namespace

// NOLINTNEXTLINE(readability-function-size): a table
std::vector<Flag> all_flags(const Program& program) {
  using C = CheckpointFlags;
  using E = EvaluationFlags;
  using L = CommandLine;
  const auto flag = [](const char* name, const char* argument, const std::string& doc, Flag::Apply apply) {
    return Flag{name, argument, doc, {}, std::move(apply)};
  };
  const auto of_a_run = [](const char* name, const char* argument, const char* doc, Flag::Apply apply) {
    return Flag{name, argument, doc, {}, std::move(apply), true};
  };
  std::vector<Flag> flags = {
      flag("workload", "FILE", "what is trained (default " + program.workload_file + ")",
           word(&L::sources, &ConfigSources::workload_file)),
      flag("strategy", "FILE",
           "the strategy's own keys (default " +
               (program.strategy_file.empty() ? "none" : program.strategy_file) + ")",
           word(&L::sources, &ConfigSources::strategy_file)),
      flag("set", "KEY=VALUE", "one key of workload or strategy, over the files; may be repeated",
           add_setting),
      flag("explain", "KEY", "what a key means, allows and holds now; \"all\" for every key",
           word(&L::explain)),
      {"steps", "N", "optimizer steps", "steps"},
      {"seed", "N", "of the initial parameters and of the order of the data", "seed"},
      {"data", "FILE", "a text file or a token file to train on", "data.source"},
      of_a_run("init", "FILE", "initial weights from a safetensors file (Hugging Face GPT-2 names)",
               word(&L::init)),
      of_a_run("save", "FILE",
               "writes the trained weights to a safetensors file (Hugging Face GPT-2 names, fp32)",
               word(&L::save)),
      of_a_run("save-every", "STEPS", "writes a checkpoint after every so many steps",
               value(integer(1), &L::checkpoints, &C::every)),
      of_a_run("keep", "N", "so many of the newest checkpoints are kept (default 2)",
               value(integer(1, 1'000'000), &L::checkpoints, &C::keep)),
      of_a_run("checkpoints", "DIR", "where they are (default runs/<lesson>/checkpoints)",
               word(&L::checkpoints, &C::dir)),
      of_a_run("save-async", "on|off",
               "write them while training goes on, from a copy in the host's memory (default on)",
               value(on_off(), &L::checkpoints, &C::async)),
      of_a_run("resume", "DIR|latest", "go on from a checkpoint, or from the newest whole one in a directory",
               word(&L::checkpoints, &C::resume)),
      of_a_run("resume-with", "KEY,...", "keys that may differ from the checkpoint's, steps for example",
               add_keys_that_may_differ),
      of_a_run(
          "crash-at", "K",
          "to see it handled: rank 0 is killed at the K-th file operation of its saves that changes anything",
          value(integer(1), &L::checkpoints, &C::crash_at)),
      of_a_run("eval-every", "STEPS", "the loss on the validation text after every so many steps, too",
               value(integer(1), &L::evaluation, &E::every)),
      of_a_run("validation", "FILE", "a text or token file to validate on, instead of the data's tail",
               word(&L::evaluation, &E::validation)),
      of_a_run("test", "FILE", "a text or token file: loss and perplexity of the trained model on all of it",
               word(&L::evaluation, &E::test)),
      of_a_run("sample", "N",
               "prints N tokens of text that the trained model makes (default: some, of a small model on the "
               "CPU; 0: "
               "none)",
               value(integer(0, 1'000'000), &L::evaluation, &E::sample)),
      of_a_run("prompt", "TEXT", "what the sample begins with (default: as the validation text does)",
               word(&L::evaluation, &E::prompt)),
      of_a_run("temperature", "T", "of the sample; 0: always the likeliest token (default 1)",
               value(real({.low = 0, .high = 100}), &L::evaluation, &E::temperature)),
      flag("device", "auto|cpu|cuda", "where ranks compute (default auto)",
           value(choice<DeviceChoice>({{"auto", DeviceChoice::automatic},
                                       {"cpu", DeviceChoice::cpu},
                                       {"cuda", DeviceChoice::cuda}}),
                 &L::device)),
      flag(
          "ops", "aten|fused|deterministic",
          "on a GPU: ATen's operations alone; own kernels where faster (default); the same, bit-equal run to "
          "run",
          value(choice<OpsChoice>({{"aten", OpsChoice::aten},
                                   {"fused", OpsChoice::fused},
                                   {"deterministic", OpsChoice::deterministic}}),
                &L::ops)),
      of_a_run(
          "graph", "on|off",
          "on a GPU: capture the third step, and replay it from then on (default on; off with --profile, "
          "--share-gpu)",
          value(on_off(), &L::graph)),
      of_a_run("profile", "", "on a GPU: time by class of operation beside its bound; without a graph",
               on(&L::profile)),
      of_a_run("transport", "copies|nccl",
               "between GPUs of one host: messages and sums of activations by copy engine (default), or all "
               "by NCCL",
               value(choice<Transport>({{"copies", Transport::copies}, {"nccl", Transport::nccl}}),
                     &L::transport)),
      flag("share-gpu", "", "let several ranks share a GPU: slow, for machines with fewer GPUs than ranks",
           on(&L::share_gpu)),
      flag("threads", "N", "intra-op threads of a rank (default: 1; beside a GPU cores / ranks)",
           value(integer(1, 1024), &L::threads)),
      flag("plan", "", "print bytes by purpose and operations a step, and exit", on(&L::plan)),
      flag("json", "", "with --plan: the same for programs, buffer by buffer and unit by unit", on(&L::json)),
      flag("strict", "", "with --plan: exit with the code and words of a run that would be refused here",
           on(&L::strict)),
      flag("world", "N", "ranks of the plan; a real run has those of run.sh -n",
           value(integer(1, 1'000'000), &L::world)),
      flag("memory-cap", "SIZE", "bytes a rank may hold on its device, e.g. 6GB or 512MiB",
           value(size(), &L::memory_cap)),
      flag("host-cap", "SIZE", "bytes a rank may hold in the host's memory beside its device",
           value(size(), &L::host_cap)),
      flag("disk-cap", "SIZE", "bytes a rank may hold on a disk", value(size(), &L::disk_cap)),
      flag("out", "DIR", "directory of the records (default runs/<lesson>/<time>)", word(&L::out)),
      of_a_run("compare", "RECORD",
               "at the end, this run beside another one of the same workload: its record.json",
               word(&L::compare)),
      flag("brief", "", "three lines and no more: bytes held, bytes sent, loss; of --plan, too",
           on(&L::brief)),
      flag("verbose", "", "every buffer and every operation, predicted beside measured", on(&L::verbose)),
      of_a_run("trace", "", "write trace.json: compute, communication and waiting of every rank",
               on(&L::trace)),
      of_a_run("page", "on|off",
               "write page.html: two steps on a clock, and what every rank held (default on)",
               value(on_off(), &L::page)),
      flag("watchdog", "SECONDS", "longest time of one operation (default 30)",
           value(real({.low = 0.1, .high = 86400}), &L::watchdog_seconds)),
      of_a_run("inject", "KIND@RANK,STEP",
               "a fault, to see it handled: hang, kill, throw or nan; steps from 0", word(&L::inject)),
      flag("help", "", "this text", on(&L::help)),
      flag("version", "", "version of program and libraries", on(&L::version)),
  };
  flags.insert(flags.end(), program.extra.begin(), program.extra.end());
  return flags;
}

std::string help_text(const Program& program, const FieldSet& strategy) {
  constexpr const char* kText = R"({name}: {question}

usage: {run} {ranks}[flags]

flags
{flags}
flags of run.sh itself
{of_run_sh}
keys of this strategy (--set, or its config.json); those of the workload: --explain all
{keys}
exit codes
{codes}
examples
  {run} {ranks_flag} 2 --steps 50 --set batch.micro=2
  {run} --plan{world} --workload configs/gpt2_1558m.json
)";
  std::vector<std::vector<std::string>> flags, codes;
  for (const Flag& flag : all_flags(program)) {
    const std::string key = flag.key.empty() ? "" : fmt::format("; as --set {}={}", flag.key, flag.argument);
    const std::string argument = flag.argument.empty() ? "" : " " + flag.argument;
    flags.push_back({fmt::format("--{}{}", flag.name, argument), flag.doc + key});
  }
  for (const auto& [code, meaning] : kExitTexts) codes.push_back({std::to_string(code), meaning});
  const std::string of_run_sh =
      table({{"-n RANKS", "processes, one a rank"},
             {"--preset cpu|cuda", "which build (default: cuda where a GPU is found)"},
             {"--dry-run", "print the command line that would run, and exit"},
             {"--build-only, --no-build", "stop before the run; run what was built before"},
             {"--max-restarts K",
              "where a rank is lost, go on from the newest checkpoint, at most K times; --inject and "
              "--crash-at happen once. Needs --save-every"},
             {"--min-ranks R", "with it: on fewer ranks, but R at least"}});
  return fmt::format(kText, fmt::arg("name", program.name), fmt::arg("question", program.question),
                     fmt::arg("run", "lessons/" + program.name + "/run.sh"),
                     fmt::arg("ranks", program.one_rank ? "" : "[-n RANKS] "),
                     fmt::arg("flags", table(flags)), fmt::arg("of_run_sh", of_run_sh),
                     fmt::arg("keys", key_lines(strategy)), fmt::arg("codes", table(codes)),
                     fmt::arg("ranks_flag", program.ranks_flag),
                     fmt::arg("world", program.one_rank ? "" : " --world 64"));
}

}  // namespace sc
