#include "common/config/flags.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>

#include "common/base/check.h"
#include "common/base/text.h"

namespace sc {
namespace {

struct ExitText {
  int code;
  const char* meaning;
};
constexpr ExitText kExitTexts[] = {
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

// Weights and checkpoints.
std::vector<Flag> flags_of_what_is_kept() {
  return {
      {"init", "FILE", "initial weights from a safetensors file (Hugging Face GPT-2 names)"},
      {"save", "FILE", "writes the trained weights to a safetensors file (Hugging Face GPT-2 names, fp32)"},
      {"save-every", "STEPS", "writes a checkpoint after every so many steps"},
      {"keep", "N", "so many of the newest checkpoints are kept (default 2)"},
      {"checkpoints", "DIR", "where they are (default runs/<lesson>/checkpoints)"},
      {"save-async", "on|off",
       "write them while training goes on, from a copy in the host's memory (default on)"},
      {"resume", "DIR|latest", "go on from a checkpoint, or from the newest whole one in a directory"},
      {"resume-with", "KEY,...", "keys that may differ from the checkpoint's, steps for example"},
      {"crash-at", "K",
       "to see it handled: rank 0 is killed at the K-th file operation of its saves that changes anything"},
  };
}

// What a run shows and leaves behind.
std::vector<Flag> flags_of_what_is_shown() {
  return {
      {"out", "DIR", "directory of the records (default runs/<lesson>/<time>)"},
      {"compare", "RECORD", "at the end, this run beside another one of the same workload: its record.json"},
      {"brief", "", "three lines and no more: bytes held, bytes sent, loss; of --plan, too"},
      {"verbose", "", "every buffer and every operation, predicted beside measured"},
      {"trace", "", "write trace.json: compute, communication and waiting of every rank"},
      {"page", "on|off", "write page.html: two steps on a clock, and what every rank held (default on)"},
  };
}

// What the trained model is looked at with.
std::vector<Flag> flags_of_evaluation() {
  return {
      {"eval-every", "STEPS", "the loss on the validation text after every so many steps, too"},
      {"validation", "FILE", "a text or token file to validate on, instead of the data's tail"},
      {"test", "FILE", "a text or token file: loss and perplexity of the trained model on all of it"},
      {"sample", "N",
       "prints N tokens of text that the trained model makes (default: some, of a small model on the CPU; 0: "
       "none)"},
      {"prompt", "TEXT", "what the sample begins with (default: as the validation text does)"},
      {"temperature", "T", "of the sample; 0: always the likeliest token (default 1)"},
  };
}

std::vector<Flag> flags_of_plans() {
  return {
      {"plan", "", "print bytes by purpose and operations a step, and exit"},
      {"json", "", "with --plan: the same for programs, buffer by buffer and unit by unit"},
      {"strict", "", "with --plan: exit with the code and words of a run that would be refused here"},
      {"world", "N", "ranks of the plan; a real run has those of run.sh -n"},
      {"memory-cap", "SIZE", "bytes a rank may hold on its device, e.g. 6GB or 512MiB"},
      {"host-cap", "SIZE", "bytes a rank may hold in the host's memory beside its device"},
      {"disk-cap", "SIZE", "bytes a rank may hold on a disk"},
  };
}

}  // namespace

std::vector<Flag> all_flags(const Program& program) {
  std::vector<Flag> flags = {
      {"workload", "FILE", "what is trained (default " + program.workload_file + ")"},
      {"strategy", "FILE",
       "the strategy's own keys (default " +
           (program.strategy_file.empty() ? "none" : program.strategy_file) + ")"},
      {"set", "KEY=VALUE", "one key of workload or strategy, over the files; may be repeated"},
      {"explain", "KEY", "what a key means, allows and holds now; \"all\" for every key"},
      {"steps", "N", "optimizer steps", "steps"},
      {"seed", "N", "of the initial parameters and of the order of the data", "seed"},
      {"data", "FILE", "a text file or a token file to train on", "data.source"},
      {"device", "auto|cpu|cuda", "where ranks compute (default auto)"},
      {"ops", "aten|fused|deterministic",
       "on a GPU: ATen's operations alone; own kernels where faster (default); the same, bit-equal run to "
       "run"},
      {"graph", "on|off",
       "on a GPU: capture the third step, and replay it from then on (default on; off with --profile, "
       "--share-gpu)"},
      {"profile", "", "on a GPU: time by class of operation beside its bound; without a graph"},
      {"transport", "copies|nccl",
       "between GPUs of one host: messages and sums of activations by copy engine (default), or all by NCCL"},
      {"share-gpu", "", "let several ranks share a GPU: slow, for machines with fewer GPUs than ranks"},
      {"threads", "N", "intra-op threads of a rank (default: 1; beside a GPU cores / ranks)"},
      {"watchdog", "SECONDS", "longest time of one operation (default 30)"},
      {"inject", "KIND@RANK,STEP", "a fault, to see it handled: hang, kill, throw or nan; steps from 0"},
      {"help", "", "this text"},
      {"version", "", "version of program and libraries"},
  };
  const auto put = [&](const char* before, const std::vector<Flag>& more) {
    flags.insert(std::ranges::find(flags, before, &Flag::name), more.begin(), more.end());
  };
  put("device", flags_of_what_is_kept()), put("device", flags_of_evaluation());
  put("watchdog", flags_of_plans()), put("watchdog", flags_of_what_is_shown());
  flags.insert(flags.end(), program.extra.begin(), program.extra.end());
  return flags;
}

std::string help_text(const Program& program, const FieldSet& strategy) {
  const std::string run = "lessons/" + program.name + "/run.sh";
  std::string out = fmt::format("{}: {}\n\nusage: {} {}[flags]\n\nflags\n", program.name, program.question,
                                run, program.one_rank ? "" : "[-n RANKS] ");
  std::vector<std::vector<std::string>> flags;
  for (const Flag& flag : all_flags(program)) {
    const std::string key = flag.key.empty() ? "" : fmt::format("; as --set {}={}", flag.key, flag.argument);
    const std::string argument = flag.argument.empty() ? "" : " " + flag.argument;
    flags.push_back({fmt::format("--{}{}", flag.name, argument), flag.doc + key});
  }
  out += table(flags);
  out += "\nflags of run.sh itself\n" +
         table({{"-n RANKS", "processes, one a rank"},
                {"--preset cpu|cuda", "which build (default: cuda where a GPU is found)"},
                {"--dry-run", "print the command line that would run, and exit"},
                {"--build-only, --no-build", "stop before the run; run what was built before"},
                {"--max-restarts K",
                 "where a rank is lost, go on from the newest checkpoint, at most K times; --inject and "
                 "--crash-at happen once. Needs --save-every"},
                {"--min-ranks R", "with it: on fewer ranks, but R at least"}});
  out += "\nkeys of this strategy (--set, or its config.json); those of the workload: --explain all\n" +
         key_lines(strategy);
  out += "\nexit codes\n";
  std::vector<std::vector<std::string>> codes;
  for (const ExitText& exit : kExitTexts) codes.push_back({std::to_string(exit.code), exit.meaning});
  out += table(codes);
  out += fmt::format("\nexamples\n  {} {} 2 --steps 50 --set batch.micro=2\n", run, program.ranks_flag);
  out += fmt::format("  {} --plan{} --workload configs/gpt2_1558m.json\n", run,
                     program.one_rank ? "" : " --world 64");
  return out;
}

}  // namespace sc
