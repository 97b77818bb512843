#include "common/config/command_line.h"

#include <gtest/gtest.h>

#include "tests/config/support.h"
#include "tests/support/answers.h"

namespace sc {
namespace {

const Program kProgram = {.name = "01_data_parallel",
                          .question = "how do several ranks train one model?",
                          .strategy_file = "lessons/01_data_parallel/config.json",
                          .extra = {{"virtual-ranks", "W", "sum as W ranks would", "virtual_ranks"}}};

CommandLine parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "program");
  return parse_command_line(static_cast<int>(arguments.size()), arguments.data(), kProgram);
}

TEST(CommandLine, WithoutFlagsTheDefaultsHold) {
  const CommandLine line = parse({});
  EXPECT_EQ(line.sources.workload_file, "configs/tiny.json");
  EXPECT_EQ(line.sources.strategy_file, "lessons/01_data_parallel/config.json");
  EXPECT_TRUE(line.sources.settings.empty());
  EXPECT_EQ(line.device, DeviceChoice::automatic);
  EXPECT_FALSE(line.plan || line.trace || line.help || line.version);
  EXPECT_FALSE(line.memory_cap.has_value());
  EXPECT_DOUBLE_EQ(line.watchdog_seconds, 30);
}

TEST(CommandLine, AnArgumentBehindAnEqualsSignMayHoldALineBreak) {
  EXPECT_EQ(parse({"--out=a\nb"}).out, "a\nb");
}

TEST(CommandLine, EveryFlagIsRead) {
  const CommandLine line = parse({"--workload",
                                  "w.json",
                                  "--strategy=s.json",
                                  "--set",
                                  "a.b=1,2=x",
                                  "--set=c=",
                                  "--steps",
                                  "5",
                                  "--seed",
                                  "7",
                                  "--data",
                                  "t.txt",
                                  "--sample",
                                  "20",
                                  "--save",
                                  "out.safetensors",
                                  "--init",
                                  "m.safetensors",
                                  "--explain",
                                  "all",
                                  "--device",
                                  "cuda",
                                  "--ops",
                                  "aten",
                                  "--graph",
                                  "off",
                                  "--share-gpu",
                                  "--threads",
                                  "2",
                                  "--plan",
                                  "--world",
                                  "64",
                                  "--memory-cap",
                                  "6GB",
                                  "--out",
                                  "o",
                                  "--compare",
                                  "r.json",
                                  "--trace",
                                  "--watchdog",
                                  "1.5",
                                  "--inject",
                                  "hang@1,3",
                                  "--help",
                                  "--version",
                                  "--virtual-ranks",
                                  "4"});
  std::vector<std::string> settings;
  for (const auto& [key, value, where] : line.sources.settings)
    settings.push_back(key + " is " + value + " by " + where);
  EXPECT_EQ(settings, (std::vector<std::string>{
                          "a.b is 1,2=x by --set a.b=1,2=x", "c is  by --set c=", "steps is 5 by --steps 5",
                          "seed is 7 by --seed 7", "data.source is t.txt by --data t.txt",
                          "virtual_ranks is 4 by --virtual-ranks 4"}));
  test::expect_texts({{line.sources.workload_file, "w.json"},
                      {line.sources.strategy_file, "s.json"},
                      {line.init, "m.safetensors"},
                      {line.save, "out.safetensors"},
                      {line.explain, "all"},
                      {line.out, "o"},
                      {line.compare, "r.json"},
                      {line.inject, "hang@1,3"}});
  EXPECT_EQ(line.evaluation.sample, 20);
  EXPECT_EQ(line.device, DeviceChoice::cuda);
  EXPECT_EQ(line.ops, OpsChoice::aten);
  EXPECT_EQ(line.graph, false);
  EXPECT_EQ(line.threads, 2);
  test::expect_each<bool>({{line.plan, true},
                           {line.trace, true},
                           {line.help, true},
                           {line.version, true},
                           {line.share_gpu, true}});
  EXPECT_EQ(line.world, 64);
  EXPECT_EQ(line.memory_cap, Bytes(6'000'000'000));
  EXPECT_DOUBLE_EQ(line.watchdog_seconds, 1.5);
}

TEST(CommandLine, FlagsOfCheckpointsAreRead) {
  const CheckpointFlags flags =
      parse({"--save-every", "10", "--keep", "3", "--checkpoints", "c", "--save-async", "off", "--resume",
             "latest", "--resume-with", "steps,optim.lr", "--crash-at", "7"})
          .checkpoints;
  EXPECT_EQ(flags.every, 10);
  EXPECT_EQ(flags.keep, 3);
  EXPECT_EQ(flags.dir, "c");
  EXPECT_FALSE(flags.async);
  EXPECT_EQ(flags.resume, "latest");
  EXPECT_EQ(flags.may_differ, (std::vector<std::string>{"steps", "optim.lr"}));
  EXPECT_EQ(flags.crash_at, 7);
  EXPECT_EQ(refusal([] {
              (void)parse({"--crash-at", "7"});
            }),
            "--crash-at: this run saves nothing\n  fix: add --save-every STEPS");
  EXPECT_EQ(refusal([] {
              (void)parse({"--crash-at", "0", "--save-every", "1"});
            }),
            "--crash-at 0: 0 is outside its range, at least 1\n  fix: --crash-at takes at least 1");
}

TEST(CommandLine, RefusesWithTheFlagThatIsNear) {
  const std::string flags = "\n  fix: --help lists the flags";
  const std::string arguments = flags + " and their arguments";
  struct Case {
    std::vector<const char*> arguments;
    std::string message;
  };
  const std::vector<Case> cases = {
      {{"--stpes", "5"}, "--stpes: there is no such flag; did you mean --steps?" + flags},
      {{"--memory_cap=6GB"}, "--memory_cap: there is no such flag; did you mean --memory-cap?" + flags},
      {{"--graph-everything"}, "--graph-everything: there is no such flag" + flags},
      {{"-x"}, "-x: there is no such flag" + flags},
      {{"--master_addr=10.0.0.1"},
       "--master_addr: it is a flag of other programs\n  fix: mpirun or Slurm finds the hosts, and no "
       "address is "
       "needed: docs/cluster.md"},
      {{"--model", "gpt2"},
       "--model: it is a flag of other programs\n  fix: --init FILE for the weights, --workload FILE for "
       "their "
       "shape: docs/real_models.md"},
      {{"-n", "4"}, "-n: the number of ranks is run.sh's flag\n  fix: run.sh -n 2, or mpirun -n 2 <program>"},
      {{"tiny.json"}, "\"tiny.json\": not a flag; every argument belongs to one" + flags},
      {{"--plan", "--", "x"}, "\"x\": not a flag; every argument belongs to one" + flags},
      {{"--steps"}, "command line: Option 'steps' is missing an argument" + arguments},
      {{"--out", "--plan"}, "--out: its argument is missing: \"--plan\" follows" + arguments},
      {{"--out="}, "--out: its argument is empty" + arguments},
      {{"--set", "batch.micro"}, "--set batch.micro: key=value is expected\n  fix: e.g. --set batch.micro=2"},
      {{"--set", "=2"}, "--set =2: key=value is expected\n  fix: e.g. --set batch.micro=2"},
      {{"--device", "gpu"},
       "--device gpu: \"gpu\" is none of auto, cpu, cuda; did you mean \"cpu\"?\n  fix: --device takes auto, "
       "cpu, cuda"},
      {{"--threads", "0"},
       "--threads 0: 0 is outside its range, 1 .. 1024\n  fix: --threads takes 1 .. 1024"},
      {{"--sample=-1"},
       "--sample -1: -1 is outside its range, 0 .. 1000000\n  fix: --sample takes 0 .. 1000000"},
      {{"--sample", "5", "--plan"},
       "--sample: it belongs to a run; --plan only predicts one\n  fix: leave one of them out"},
      {{"--watchdog", "0"},
       "--watchdog 0: 0 is outside its range, 0.1 <= x <= 86400\n  fix: --watchdog takes 0.1 <= x <= 86400"},
      {{"--memory-cap", "6gb"},
       "--memory-cap 6gb: \"6gb\" is not a size; write e.g. 6GB, 512MiB or 1e9\n  fix: --memory-cap takes "
       "bytes, or e.g. 6GB, 512MiB"},
      {{"--graph", "on", "--share-gpu"},
       "--graph on: ranks that share a GPU cannot capture their communication\n  fix: --graph off"},
      {{"--transport", "nccl", "--share-gpu"},
       "--transport: ranks that share a GPU send through the host\n  fix: leave one of them out"},
      {{"--profile", "--share-gpu"},
       "--profile: it measures what operations take alone, and ranks that share a GPU never are\n  fix: "
       "leave out "
       "--share-gpu"},
      {{"--profile", "--graph", "on"},
       "--graph on: --profile looks at single operations, which a graph hides\n  fix: --graph off"},
      {{"--strict"}, "--strict: a run refuses what it cannot do anyway\n  fix: --plan --strict"},
      {{"--world", "4"},
       "--world 4: it belongs to --plan; a run has as many ranks as were started\n"
       "  fix: add --plan, or start the ranks: run.sh -n 4"},
      {{"--out", "a", "--out", "b"}, "--out b: --out is also given as \"a\"\n  fix: remove one of them"},
      {{"--plan=perhaps"}, "command line: Argument 'perhaps' failed to parse" + arguments},
  };
  for (const Case& c : cases) EXPECT_EQ(refusal([&c] { (void)parse(c.arguments); }), c.message);
}

TEST(CommandLine, AFlagThatNobodyReadsIsAMistakeOfTheProgram) {
  const Program program = {.name = "x", .question = "", .extra = {{"idle", "N", "does nothing", ""}}};
  const std::vector<const char*> arguments = {"program", "--idle", "3"};
  EXPECT_THROW((void)parse_command_line(3, arguments.data(), program), std::logic_error);
}

TEST(CommandLine, AStrictPlanTakesTheFlagsOfARun) {
  const CommandLine line =
      parse({"--plan", "--strict", "--save-every", "2", "--sample", "5", "--compare", "r"});
  EXPECT_TRUE(line.plan && line.strict);
  EXPECT_EQ(line.checkpoints.every, 2);
}

TEST(CommandLine, AShorthandAndItsKeyMustAgree) {
  const CommandLine line = parse({"--steps", "25", "--set", "steps=26"});
  EXPECT_EQ(
      refusal([&line] {
        (void)resolve({"", "", line.sources.settings}, FieldSet());
      }),
      "--set steps=26: steps is also given by \"--steps 25\", with another value\n  fix: remove one of them");
}

TEST(Help, HoldsFlagsKeysExitCodesAndExamples) {
  Options options;
  const std::string help = help_text(kProgram, options_table().bind(options));
  test::expect_parts(help, {"usage: lessons/01_data_parallel/run.sh [-n RANKS] [flags]", "--workload FILE",
                            "--memory-cap SIZE", "--virtual-ranks W", "as --set virtual_ranks=W",
                            "as --set steps=N", "bucket=unit", "overlap=on", "verify_replicas=10",
                            "exit codes", "64  command line or configuration", "143", "--plan --world 64"});
  for (const char c : help) EXPECT_TRUE(c == '\n' || (c >= ' ' && c <= '~'));
}

}  // namespace
}  // namespace sc
