// Tests the `pipedream` command inside this process: its output, its refusals and their exit codes.
#include "pipedream/command/command.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <regex>
#include <sstream>

#include "pipedream/command/figures.h"
#include "pipedream/command/text.h"
#include "pipedream/command/timeline_text.h"
#include "pipedream/cost_files.h"
#include "pipedream/schedule_file.h"
#include "tests/pipedream/support.h"

namespace sc::pipedream {
namespace {

using test::expect_answers, test::expect_in_answers, test::expect_parts, test::expect_texts;

struct Result {
  int code = 0;
  std::string out, err;
};

Result run(const std::string& line, bool colour = false) {
  std::istringstream words(line);
  std::vector<std::string> arguments = {"pipedream"};
  for (std::string word; words >> word;) arguments.push_back(word);
  std::ostringstream out, err;
  const int code = run_command(arguments, {out, err, colour});
  return {code, out.str(), err.str()};
}

std::string refused(const std::string& line, int code = 64) {
  const Result result = run(line);
  EXPECT_EQ(result.code, code) << line;
  EXPECT_EQ(result.out, "") << line;
  return result.err;
}

std::string refusal(const std::string& line) { return refused(line); }
std::string printed(const std::string& line) {
  const Result result = run(line);
  EXPECT_EQ(result.code, 0) << line;
  EXPECT_EQ(result.err, "") << line;
  return result.out;
}

class InFolder : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  [[nodiscard]] std::string path(const std::string& name) const { return (folder_ / name).string(); }

 private:
  std::filesystem::path folder_ =
      std::filesystem::path(::testing::TempDir()) /
      ("pipedream_" + std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()));
};

using Command = InFolder;

TEST(Text, Numbers) {
  expect_texts({{number_text(21), "21"},
                {number_text(0.5), "0.5"},
                {number_text(-0.0001), "0"},
                {number_text(1234.5678, 2), "1234.57"},
                {number_text(100, 0), "100"},
                {number_text(-0.4, 0), "0"},
                {count_text(1, "microbatch"), "1 microbatch"},
                {count_text(2, "microbatch"), "2 microbatches"},
                {count_text(0, "stage"), "0 stages"},
                {percent_text(4.0 / 7), "57.1 %"},
                {share_text(std::nullopt), "-"},
                {bytes_text(0), "0 B"},
                {bytes_text(999), "999 B"},
                {bytes_text(8388608), "8.39 MB"},
                {bytes_text(2e15), "2000 TB"},
                {table_text({{"a", "bb"}, {"ccc", "d"}}), "a    bb\nccc   d\n"},
                {table_text({}), ""}});
}

TEST(TimelineText, ATickAColumn) {
  const Schedule s = generate({.family = Family::gpipe, .stages = 2, .microbatches = 2});
  EXPECT_EQ(timeline_text(s, simulate(s, {}), false),
            "time      0  1  2  3  4  5  6  7  8\n"
            "stage 0   F0 F1 .  .  .  B0 ===B1 ===\n"
            "stage 1   .  F0 F1 B0 ===B1 ===.  .\n");
  EXPECT_NE(timeline_text(s, simulate(s, {}), true).find("\x1b[30;104mF0 \x1b[0m"), std::string::npos);
  const Schedule split = generate({.family = Family::zb_h1, .stages = 1, .microbatches = 1});
  const std::string coloured = timeline_text(split, simulate(split, {}), true);
  expect_parts(coloured, {"\x1b[30;105mI0 ", "\x1b[30;102mW0"});
}

TEST(TimelineText, NinetySixColumnsOtherwise) {
  const Schedule s = generate({.family = Family::naive, .stages = 2, .microbatches = 1});
  Costs costs{.times = {{1, 0.30103, 0.4771, 0}}};
  const Timeline timeline = simulate(s, costs);
  EXPECT_EQ(tick_of(s, timeline), 0);
  const std::string text = timeline_text(s, timeline, false);
  EXPECT_EQ(text.substr(0, text.find('\n')),
            "stage 0   " + std::string(27, 'F') + std::string(48, '.') + std::string(21, 'B'));
  EXPECT_NE(text.find("one column is 0.037044 of time"), std::string::npos) << text;
  costs.times = {{0, 0, 0, 1}};
  EXPECT_EQ(tick_of(s, simulate(s, costs)), 0);
  costs.times = {{0, 0, 0, 0}};
  EXPECT_EQ(timeline_text(s, simulate(s, costs), false), "nothing takes any time\n");
}

TEST(TimelineText, TheTickDividesAllTimes) {
  const Schedule s = generate({.family = Family::naive, .stages = 2, .microbatches = 1});
  Costs costs{.times = {{0.75, 0.5, 0, 0}}};
  EXPECT_DOUBLE_EQ(tick_of(s, simulate(s, costs)), 0.25);
  EXPECT_NE(timeline_text(s, simulate(s, costs), false).find("one column is 0.25 of time"),
            std::string::npos);
  costs.latency = 0.25;
  EXPECT_DOUBLE_EQ(tick_of(s, simulate(s, costs)), 0.25);
}

TEST_F(Command, SimulateByDefault) {
  EXPECT_EQ(printed("simulate"),
            "1f1b: 4 stages, 4 microbatches, versions flush (simulated)\n"
            "time      0  1  2  3  4  5  6  7  8  9  10 11 12 13 14 15 16 17 18 19 20\n"
            "stage 0   F0 F1 F2 F3 .  .  .  .  .  .  B0 ===.  B1 ===.  B2 ===.  B3 ===\n"
            "stage 1   .  F0 F1 F2 .  .  .  .  B0 ===F3 B1 ===.  B2 ===.  B3 ===.  .\n"
            "stage 2   .  .  F0 F1 .  .  B0 ===F2 B1 ===F3 B2 ===.  B3 ===.  .  .  .\n"
            "stage 3   .  .  .  F0 B0 ===F1 B1 ===F2 B2 ===F3 B3 ===.  .  .  .  .  .\n"
            "makespan 21, utilisation 57.1 %, idle 42.9 %\n"
            "closed formula: makespan 21\n\n"
            "stage  busy    idle  steady idle  activations  versions  receive buffers  messages sent\n"
            "0        12  42.9 %            -            4         1                2              4\n"
            "1        12  42.9 %        0.0 %            3         1                3              8\n"
            "2        12  42.9 %        0.0 %            2         1                3              8\n"
            "3        12  42.9 %        0.0 %            1         1                2              4\n");
}

TEST_F(Command, SimulateSaysWhenThereIsNoFormula) {
  EXPECT_NE(run("simulate --schedule interleaved -m 6").out.find("closed formula: none for these numbers\n"),
            std::string::npos);
  for (const char* flags : {"--latency 1", "--step 1", "--uneven 1,1,1,2", "--message-bytes 1 --bandwidth 1"})
    EXPECT_EQ(run(std::string("simulate ") + flags).out.find("closed formula"), std::string::npos) << flags;
  EXPECT_NE(run("simulate --message-bytes 1").out.find("closed formula: makespan 21"), std::string::npos);
}

TEST_F(Command, SimulateWritesSpansAndBytes) {
  const std::string out = printed(
      "simulate --schedule gpipe -s 2 -m 1 --activation-bytes 1e6 --weight-bytes 2e6 --message-bytes 3e3 "
      "--spans " +
      path("spans.csv"));
  EXPECT_NE(out.find("1 MB          2 MB           3 kB"), std::string::npos) << out;
  EXPECT_EQ(read_text(path("spans.csv")),
            "stage,action,start,end\n0,RG0,0,4\n0,F0,0,1\n0,SA0,1,1\n0,B0,4,6\n0,step@1,6,6\n"
            "1,RA0,0,1\n1,F0,1,2\n1,B0,2,4\n1,SG0,4,4\n1,step@1,4,4\n");
  const Result unwritable = run("simulate --spans " + path("no/file"));
  EXPECT_EQ(unwritable.code, 73);
  EXPECT_NE(unwritable.err.find("cannot be written"), std::string::npos);
}

TEST_F(Command, SimulateWritesWhatStagesHoldWhen) {
  const Result result = run("simulate --schedule pipedream -s 2 -m 2 --json " + path("timeline.json"));
  EXPECT_EQ(result.code, 0);
  const std::string text = read_text(path("timeline.json"));
  for (const char* part : {R"("makespan": 9)", R"("idle": 0.333333333)", R"("formula_makespan": 9,)",
                           R"("formula_idle": 0.333333333)",
                           R"("spans": [["F0", "forward", 0, 0, 1], ["SA0", "send_activation", 0, 1, 1])",
                           R"("alive": [[0, 0, 1], [0, 1, 1], [1, 2, 1], )"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  EXPECT_EQ(run("simulate --latency 1 --json " + path("latency.json")).code, 0);
  EXPECT_NE(read_text(path("latency.json")).find(R"("formula_makespan": null)"), std::string::npos);
  EXPECT_EQ(run("simulate --json " + path("no/file")).code, 73);
}

TEST_F(Command, SimulateReadsFiles) {
  Costs costs{.times = {{1, 1, 1, 0}, {3, 3, 3, 0}}};
  write_text(path("costs.json"), to_json(costs));
  write_text(path("s.csv"), to_csv(generate({.family = Family::gpipe, .stages = 2, .microbatches = 3})));
  const Result result = run("simulate --file " + path("s.csv") + " --costs " + path("costs.json"));
  expect_parts(result.out, {"makespan 30, utilisation 60.0 %", "activation bytes"});
  EXPECT_NE(run("simulate --schedule gpipe -s 2 -m 3 --uneven 1,3").out.find("makespan 30,"),
            std::string::npos);
}

TEST_F(Command, CheckPassesAndWrites) {
  EXPECT_EQ(
      printed("check --schedule pipedream --versions vertical_sync -s 2 -m 4 --list --write " +
              path("s.json")),
      "stage 0: F0 SA0 RG0 F1 SA1 B0 stash@0 step@1 RG1 F2@1 SA2 B1 drop@0 stash@1 step@2 RG2 F3@2 SA3 RG3 "
      "B2@1 drop@1 stash@2 step@3 B3@2 drop@2 step@4\n"
      "stage 1: RA0 RA1 F0 B0 SG0 stash@0 step@1 F1 RA2 B1 SG1 drop@0 stash@1 step@2 F2@1 RA3 B2@1 SG2 "
      "drop@1 stash@2 "
      "step@3 F3@2 B3@2 SG3 drop@2 step@4\n"
      "pipedream: complete, ordered, every send meets its receive, no deadlock, versions vertical_sync\n"
      "stage  actions  activations  versions  allowed  receive buffers  messages sent  steps\n"
      "0           26            2         2        2                2              4      4\n"
      "1           26            1         2        2                2              4      4\n");
  EXPECT_EQ(run("check --file " + path("s.json")).code, 0);
  EXPECT_EQ(run("check -s 2 --write " + path("s.csv")).code, 0);
  EXPECT_EQ(read_schedule(path("s.csv")), generate({.stages = 2}));
  EXPECT_EQ(refused("check --write s.txt"),
            "error: s.txt: is neither .csv nor .json\n  fix: choose one of these endings\n");
}

TEST_F(Command, CheckPrintsTheRingOfADeadlock) {
  EXPECT_EQ(
      refused("check --schedule deadlock_ring", 65),
      "deadlock: stage 0, action 7: SA3 never ends: 4 stages wait for each other in a ring\n"
      "  stage 0, action 7: SA3 waits until stage 1 posts RA3\n"
      "  stage 1, action 8: SA2 waits until stage 2 posts RA2\n"
      "  stage 2, action 5: SA1 waits until stage 3 posts RA1\n"
      "  stage 3, action 2: SA0 waits until stage 0 posts RA0/1\n"
      "error: schedule deadlock_ring breaks a rule\n"
      "  fix: mend the first line above first; docs: pipedream/README.md, \"What the checker proves\"\n");
  for (const char* command : {"simulate", "draw", "explain"})
    EXPECT_NE(refused(std::string(command) + " --schedule deadlock_send_first", 65)
                  .find("SG0 waits until stage 2 posts RG0"),
              std::string::npos);
  write_text(path("empty.json"),
             "{\"schedule\":\"e\",\"stages\":1,\"microbatches\":25,\"chunks\":1,\"versions\":\"flush\","
             "\"actions\":[[]]}");
  const std::string many = refused("check --file " + path("empty.json"), 65);
  EXPECT_NE(many.find("and 5 more\nerror: schedule e breaks rules\n"), std::string::npos) << many;
}

TEST_F(Command, DrawInTheTerminalAndAsSvg) {
  expect_in_answers(printed, {{"draw --schedule interleaved", "2 chunks a stage, versions flush"},
                              {"draw --color always", "\x1b["}});
  EXPECT_EQ(run("draw --schedule gpipe -s 1 -m 1").out,
            "gpipe: 1 stage, 1 microbatch, versions flush (simulated)\ntime      0  1  2\nstage 0   F0 B0 "
            "===\n");
  EXPECT_NE(run("draw", true).out.find("\x1b["), std::string::npos);
  EXPECT_EQ(run("draw --color never", true).out.find("\x1b["), std::string::npos);
  const auto drawn = [&](const std::string& flags) {
    EXPECT_EQ(run("draw " + flags + " --out " + path("a.svg")).code, 0);
    return read_text(path("a.svg"));
  };
  const std::string svg = drawn("--schedule pipedream --show-versions");
  EXPECT_NE(svg.find(">v3</text>"), std::string::npos);
  EXPECT_EQ(svg.find(", ...</text>"), std::string::npos);
  // A drawing of nine versions has only eight colours, and its legend says that colours repeat.
  expect_in_answers(drawn, {{"--schedule zb_h1", "backward, weights' half"},
                            {"--schedule pipedream -m 9 --show-versions", ">v0, v8, ...</text>"},
                            {"--schedule zb_h1 --show-versions", ">W3</text>"}});
  EXPECT_TRUE(svg.starts_with("<svg xmlns"));
  // Times too short for a tick are drawn without an axis, and boxes too narrow for a number without one.
  EXPECT_EQ(drawn("-m 200 --forward 1.2345").find("class=\"axis\""), std::string::npos);
}

TEST_F(Command, FiguresSayWhatTheyShow) {
  for (const std::string& name : figure_names()) {
    const std::string svg = run("draw --figure " + name).out;
    expect_parts(svg, {"<title id=\"title\">", "<desc id=\"desc\">Simulated ", "simulated (hatched)",
                       "prefers-color-scheme: dark"});
    EXPECT_EQ(svg.substr(svg.size() - 7), "</svg>\n") << name;
    EXPECT_EQ(svg, figure_svg(name)) << name;
    EXPECT_EQ(run("draw --figure " + name + " --out " + path("f.svg")).out, "");
    EXPECT_EQ(read_text(path("f.svg")), svg) << name;
  }
  EXPECT_NE(figure_svg("utilization_comparison").find("zb_h1: 80.0 %, 88.9 %, 94.1 %, 97.0 %."),
            std::string::npos);
  EXPECT_NE(figure_svg("weight_versioning")
                .find("Stage 0 keeps 4. Stage 1 keeps 3. Stage 2 keeps 2. Stage 3 keeps 1."),
            std::string::npos);
  EXPECT_NE(refused("draw --figure pie").find("there is no figure 'pie'"), std::string::npos);
}

// In a drawing, boxes of one row never overlap, and every compute action has one box.
TEST_F(Command, SvgHasABoxAnAction) {
  EXPECT_EQ(run("draw --schedule 1f1b -m 3 -s 2 --out " + path("a.svg")).code, 0);
  const std::string svg = read_text(path("a.svg"));
  const std::regex box("class=\"box\" x=\"([0-9.]+)\" y=\"([0-9.]+)\" width=\"([0-9.]+)\"");
  std::map<std::string, double> end_of_row;
  int boxes = 0;
  for (std::sregex_iterator match(svg.begin(), svg.end(), box), end; match != end; ++match) {
    ++boxes;
    const double left = std::stod((*match)[1]);
    EXPECT_GE(left, end_of_row[(*match)[2]] - 0.02) << match->str();  // two digits behind the point
    end_of_row[(*match)[2]] = left + std::stod((*match)[3]);
  }
  EXPECT_EQ(boxes, 2 * 3 * 2 + 2);  // two entries of the legend
  EXPECT_EQ(end_of_row.size(), 3U);
}

TEST_F(Command, CompareListsAllSchedules) {
  EXPECT_EQ(printed("compare -m 8 --json " + path("c.json")),
            "4 stages, 8 microbatches (simulated)\n"
            "schedule                  makespan  utilisation    idle  steady idle  activations  versions  "
            "messages  steps\n"
            "naive                           96       25.0 %  75.0 %       75.0 %            1         1     "
            "   48      1\n"
            "gpipe                           33       72.7 %  27.3 %            -            8         1     "
            "   48      1\n"
            "1f1b                            33       72.7 %  27.3 %        0.0 %            4         1     "
            "   48      1\n"
            "interleaved, 2 chunks         28.5       84.2 %  15.8 %        6.3 %          5.5         1     "
            "  112      1\n"
            "zb_h1                           27       88.9 %  11.1 %        0.0 %            4         1     "
            "   48      1\n"
            "pipedream, none                 33       72.7 %  27.3 %        0.0 %            4         1     "
            "   48      8\n"
            "pipedream, stash                33       72.7 %  27.3 %        0.0 %            4         4     "
            "   48      8\n"
            "pipedream, vertical_sync        33       72.7 %  27.3 %        0.0 %            4         4     "
            "   48      8\n"
            "2bw                             33       72.7 %  27.3 %        0.0 %            4         1     "
            "   48      1\n");
  const std::string json = read_text(path("c.json"));
  EXPECT_NE(
      json.find(
          "{\"schedule\": \"gpipe\", \"stages\": 4, \"microbatches\": 8, \"makespan\": 33, \"utilization\": "
          "0.727273, "
          "\"steady_idle\": null, \"activations\": 8, \"versions\": 1, \"messages\": 48, \"steps\": 1},"),
      std::string::npos)
      << json;
  // `compare` leaves 2BW out where M < S, because two buffers need M >= S; the other schedules have no such
  // limit.
  EXPECT_EQ(run("compare -m 3").out.find("2bw"), std::string::npos);
  const std::string chunks = run("compare -m 8 --chunks 3").out;
  expect_parts(chunks, {"interleaved, 3 chunks", "zb_h1, 3 chunks"});
  EXPECT_NE(run("compare -m 4 -b 3").out.find("2bw                             45       80.0 %"),
            std::string::npos);
}

TEST_F(Command, AWarmupIsReadWhereverASchedulesFlagsAre) {
  EXPECT_EQ(run("simulate --warmup 0").out, run("simulate").out);
  const std::string simulated = run("simulate -s 2 -m 4 --warmup 1").out;
  EXPECT_EQ(simulated.find("1f1b_warmup_1: 2 stages, 4 microbatches, versions flush (simulated)\n"), 0U);
  expect_parts(simulated, {"\nstage 0   F0 F1 F2 .  B0 ===F3 B1 ===", "closed formula: makespan 15\n"});
  EXPECT_EQ(run("check -s 2 -m 4 --warmup 2 --write " + path("k.json")).code, 0);
  EXPECT_EQ(read_schedule(path("k.json")), generate({.stages = 2, .microbatches = 4, .warmup = 2}));
  expect_in_answers(printed, {{"draw -m 5 --warmup 3", "F0 F1 F2 F3 F4 "},
                              {"explain -s 2 --warmup 2", "t3    stage 0: forward of microbatch 3\n"}});
  // With --warmup, `compare` shows 1F1B both with and without the longer warm-up.
  const std::string both = run("compare -m 8 --warmup 1 --latency 1").out;
  expect_parts(both, {"\n1f1b                            49 ", "\n1f1b_warmup_1                   44 "});
  EXPECT_EQ(refused("compare --warmup 3"), refused("check --warmup 3"));
  EXPECT_EQ(refused("simulate --schedule gpipe --warmup 1"),
            "error: warmup: 1f1b alone has a warm-up that can be longer, and this is gpipe\n"
            "  fix: leave warmup at 0, or choose 1f1b\n");
}

TEST_F(Command, CompareWithZero) {
  EXPECT_EQ(
      run("compare --against-zero").out,
      "one rank sends in a step                     formula     bytes\n"
      "pipeline, an interior stage                4 m b s h  67.11 MB\n"
      "ZeRO-3, at most                    6 g P (N - 1) / N    1.6 GB\n"
      "ZeRO-3, at least             (2 g + 2) P (N - 1) / N   1.06 GB\n"
      "with m = 4, b = 4, s = 1024, h = 1024, g = ceil(m / N) = 1, P = 354823168, N = 4, 2 bytes an element\n"
      "at most: every forward and every backward gathers all P; at least: P is gathered once a step and "
      "stays\n"
      "ZeRO-3 sends 15.9 to 23.8 times as much\n");
  EXPECT_NE(run("compare --against-zero --parameters 1e6 -m 9")
                .out.find("\nthe pipeline sends 11.2 to 25.2 times as much\n"),
            std::string::npos);
  // The pipeline's 134.2 MB lie between the least and the most that ZeRO-3 sends, so neither always sends
  // more.
  EXPECT_NE(run("compare --against-zero --parameters 17e6 -m 8")
                .out.find("\nZeRO-3 sends 0.6 to 1.1 times as much\n"),
            std::string::npos);
  EXPECT_EQ(run("compare --against-zero -s 1").out.find("times as much"), std::string::npos);
  EXPECT_NE(refused("compare --against-zero -m 0").find("stages and microbatches are at least 1"),
            std::string::npos);
}

TEST_F(Command, PartitionPrintsThreeSplits) {
  const std::string out =
      printed("partition --profile-out " + path("p.json") + " --costs-out " + path("c.json"));
  expect_parts(out, {"uniform: 4 stages on 4 ranks, 8.2 ms a microbatch, 71.0 % of the ranks' time",
                     "balanced: 4 stages on 4 ranks, 5.9 ms a microbatch, 99.2 % of the ranks' time",
                     "optimal, replicas allowed: 1 stage on 4 ranks"});
  EXPECT_EQ(run("partition --profile " + path("p.json")).out, out);
  EXPECT_EQ(read_costs(path("c.json")).times.size(), 4U);
  EXPECT_EQ(run("simulate --costs " + path("c.json")).code, 0);
  for (const auto& [split, entries] : {std::pair{"optimal", 1U}, std::pair{"uniform", 4U}}) {
    EXPECT_EQ(run("partition --split " + std::string(split) + " --costs-out " + path("c.json")).code, 0);
    EXPECT_EQ(read_costs(path("c.json")).times.size(), entries);
  }
  const std::string slow = run("partition --bandwidth 4e12 --reduction parameter_server --ranks 3").out;
  EXPECT_NE(slow, run("partition --bandwidth 4e12 --ranks 3").out);
  const std::string many = run("partition --ranks 26").out;
  EXPECT_NE(many.find("uniform: more ranks than blocks\nbalanced: 26 stages on 26 ranks"), std::string::npos)
      << many;
  expect_in_answers(printed, {{"partition --ranks 27", "balanced: more ranks than layers\noptimal"},
                              {"partition --ranks 24", "uniform: 24 stages on 24 ranks"}});
  const std::string limited = run("partition --memory 5e9 --bandwidth 2.5e10").out;
  EXPECT_NE(limited.find("  5.12 GB (over the limit)\n"), std::string::npos) << limited;
  EXPECT_EQ(limited.find("over the limit"), limited.rfind("over the limit")) << limited;
  EXPECT_NE(refused("partition --memory 1e8", 65).find("no partition fits"), std::string::npos);
}

TEST_F(Command, PartitionRefuses) {
  expect_in_answers(refusal, {{"partition --model gpt3", "there is no model 'gpt3'"},
                              {"partition --reduction tree", "there is no reduction 'tree'"},
                              {"partition --sequence 0", "greater than 0"},
                              {"partition --ranks 99", "ranks: 99 is out of range"}});
  const Result result = run("partition --split best --costs-out " + path("c.json"));
  EXPECT_EQ(result.code, 64);
  EXPECT_NE(result.err.find("there is no split 'best'"), std::string::npos);
  const Result uncut = run("partition --ranks 27 --split balanced --costs-out " + path("c.json"));
  EXPECT_EQ(uncut.code, 64);
  EXPECT_NE(uncut.err.find("balanced cannot cut this model for so many ranks"), std::string::npos);
}

TEST_F(Command, ExplainTellsInWords) {
  EXPECT_EQ(run("explain --schedule pipedream -s 2 -m 2").out,
            "pipedream: 2 stages, 2 microbatches, versions stash (simulated)\n"
            "t0    stage 0: forward of microbatch 0 with version 0\n"
            "      stage 1: waits for the activation of microbatch 0 from stage 0\n"
            "t1    stage 0: forward of microbatch 1 with version 0\n"
            "      stage 1: forward of microbatch 0 with version 0\n"
            "t2    stage 0: waits for the gradient of microbatch 0 from stage 1\n"
            "      stage 1: backward of microbatch 0 with version 0\n"
            "t3    stage 0: waits for the gradient of microbatch 0 from stage 1\n"
            "      stage 1: backward of microbatch 0 goes on\n"
            "t4    stage 0: backward of microbatch 0 with version 0\n"
            "      stage 1: step: its weights are now version 1; forward of microbatch 1 with version 1\n"
            "t5    stage 0: backward of microbatch 0 goes on\n"
            "      stage 1: backward of microbatch 1 with version 1\n"
            "t6    stage 0: stashes version 0; step: its weights are now version 1; waits for the gradient "
            "of microbatch 1 from "
            "stage 1\n"
            "      stage 1: backward of microbatch 1 goes on\n"
            "t7    stage 0: backward of microbatch 1 with version 0\n"
            "      stage 1: step: its weights are now version 2; has finished\n"
            "t8    stage 0: backward of microbatch 1 goes on\n"
            "      stage 1: has finished\n"
            "t9    stage 0: drops version 0; step: its weights are now version 2; has finished\n"
            "      stage 1: has finished\n"
            "Every stage is busy 66.7 % of the time.\n");
  const std::string split = run("explain --schedule zb_h1 -s 2 -m 2").out;
  expect_parts(split,
               {"backward, input's half, of microbatch 0", "backward, weights' half, of microbatch 1"});
  EXPECT_NE(run("explain --schedule interleaved -s 2 -m 2").out.find("forward of microbatch 0 on chunk 1"),
            std::string::npos);
  expect_in_answers(refusal,
                    {{"explain -m 300", "no common tick, or there are more than 400"},
                     {"explain --forward 0 --backward-input 0 --backward-weights 0", "no common tick"}});
}

constexpr const char* kExercises[] = {"write_a_schedule", "break_the_send_order", "predict_the_version",
                                      "choose_the_microbatches"};

TEST_F(Command, ExercisesFailAsShippedAndSolutionsPass) {
  for (const std::string name : kExercises) {
    EXPECT_NE(refused("exercise --name " + name, 65).find("error: exercise " + name + ": not solved yet: "),
              std::string::npos);
    const Result solved =
        run("exercise --name " + name + " --file pipedream/exercises/solution/" + name + ".json");
    EXPECT_EQ(solved.code, 0) << solved.err;
    EXPECT_EQ(solved.out.find(name + ": solved: "), 0U);
  }
}

// An exercise answer that is nearly right gets a message that says what is missing.
TEST_F(Command, ExercisesSayWhatIsMissing) {
  const auto told = [&](const std::string& name, const std::string& text) {
    write_text(path("a.json"), text);
    return refused("exercise --name " + name + " --file " + path("a.json"), 65);
  };
  const auto schedule = [](Family family, int stages, int microbatches) {
    return generate({.family = family, .stages = stages, .microbatches = microbatches});
  };
  Schedule swapped = schedule(Family::one_f_one_b, 3, 3);
  std::swap(swapped.actions[1][0], swapped.actions[1][1]);  // RA1 RA0
  Schedule lacking = swapped;
  lacking.actions[1].erase(lacking.actions[1].begin());
  std::string wrong = read_text("pipedream/exercises/solution/predict_the_version.json");
  wrong.replace(wrong.find("\"version\": 2"), 12, "\"version\": 3");
  for (const auto& [name, text, part] : std::vector<std::array<std::string, 3>>{
           {"write_a_schedule", to_json(schedule(Family::one_f_one_b, 3, 5)),
            "for other numbers than 3 stages"},
           {"write_a_schedule", to_json(schedule(Family::gpipe, 3, 4)),
            "stage 0 holds 4 activations, 3 are allowed"},
           {"write_a_schedule", to_json(schedule(Family::naive, 3, 4)), "it takes 36, 18 are possible"},
           {"break_the_send_order", to_json(schedule(Family::gpipe, 3, 3)),
            "the compute actions have changed"},
           {"break_the_send_order", to_json(swapped), "it breaks other rules\nmessage: stage 0"},
           {"break_the_send_order", to_json(lacking), "a message of stage 1 is missing or new"},
           {"predict_the_version", wrong, "questions[0].version is wrong"},
           {"predict_the_version", R"({"questions": []})", "there are six questions"},
           {"predict_the_version", R"({"questions": [{"versions": "all"}]})",
            "must be none, stash, vertical_sync or two_buffers, not \"all\""},
           {"predict_the_version", R"({"questions": [{"versions": "stash", "stage": 4}]})",
            "must be a whole number from 0 to 3, not 4"},
           {"predict_the_version", R"({"questions": [{"versions": "stash", "stage": 0, "action": "F9"}]})",
            "there is no F9"},
           {"choose_the_microbatches", R"({"gpipe": 28})",
            "gpipe: 28 is not the least number of microbatches"}})
    expect_parts(told(name, text), {part});
  expect_in_answers(refusal, {{"exercise --name five", "there is no exercise 'five'"}});
  EXPECT_EQ(run("exercise --help").code, 0);
}

TEST_F(Command, Help) {
  for (const char* line : {"", "--help", "-h", "help"}) {
    const Result result = run(line);
    EXPECT_EQ(result.code, 0);
    EXPECT_EQ(result.out.find("pipedream: pipeline schedules as data"), 0U);
  }
  for (const char* command : {"simulate", "check", "draw", "compare", "partition", "explain"}) {
    const Result result = run(std::string(command) + " --help");
    EXPECT_EQ(result.code, 0);
    EXPECT_NE(result.out.find("pipedream " + std::string(command)), std::string::npos);
    EXPECT_EQ(result.out.find("(default: \"\")"), std::string::npos) << result.out;
  }
}

TEST_F(Command, RefusesBadFlags) {
  expect_answers(refusal,
                 {{"simulat",
                   "error: pipedream: there is no command 'simulat'\n  fix: choose simulate, check, draw, "
                   "compare, partition, explain or exercise\n"},
                  {"simulate --stages four",
                   "error: pipedream simulate --stages: 'four' is no whole number\n  fix: write for example "
                   "--stages 4\n"}});
  expect_in_answers(refusal,
                    {{"simulate --stage 4", "fix: see pipedream simulate --help"},
                     {"simulate four", "'four' is no flag"},
                     {"simulate -s 4x", "'4x' is no whole number"},
                     {"simulate --forward -1", "'-1' is no number of at least 0"},
                     {"simulate --forward nan", "'nan' is no number"},
                     {"simulate --forward 1s", "'1s' is no number"},
                     {"simulate --uneven 1,x", "'x' is no number"},
                     {"simulate --uneven 1,-2", "'-2' is no number"},
                     {"simulate --schedule zero", "there is no schedule 'zero'"},
                     {"simulate --schedule pipedream --versions all", "there is no version rule 'all'"},
                     {"simulate --schedule gpipe --chunks 2", "gpipe has one chunk a stage"},
                     {"simulate --stages 0", "stages: 0 is out of range"},
                     {"simulate --file none.csv", "none.csv: cannot be read"}});
  EXPECT_NE(refused("simulate --uneven 1,2", 65).find("2 entries for 4 stages"), std::string::npos);
  EXPECT_NE(run("draw --color blue").err.find("'blue' is no choice"), std::string::npos);
}

TEST_F(Command, WhatDeadlocksOnPurposeHasOneShape) {
  for (const std::string name : {"deadlock_send_first", "deadlock_ring"})
    for (const auto& [words, flag] : std::vector<std::array<std::string, 2>>{{"--stages 2", "stages"},
                                                                             {"-m 8", "microbatches"},
                                                                             {"-v 2", "chunks"},
                                                                             {"-b 2", "batches"},
                                                                             {"--warmup 1", "warmup"},
                                                                             {"--versions none", "versions"}})
      EXPECT_EQ(refused("check --schedule " + name + " " + words),
                "error: pipedream check --" + flag + ": " + name +
                    " is one schedule, of 4 stages and 4 microbatches\n  fix: leave it out\n");
}

TEST_F(Command, RefusesFlagsThatNothingWouldRead) {
  for (const auto& [line, flag, other] : std::vector<std::array<std::string, 3>>{
           {"simulate --file a.csv -s 2", "stages", "file"},
           {"check --file a.csv --schedule gpipe", "schedule", "file"},
           {"explain --file a.csv --versions none", "versions", "file"},
           {"simulate --costs c.json --forward 2", "forward", "costs"},
           {"simulate --costs c.json --weight-bytes 2", "weight-bytes", "costs"},
           {"compare --against-zero --latency 1", "latency", "against-zero"},
           {"compare --against-zero -b 2", "batches", "against-zero"},
           {"compare --against-zero --warmup 1", "warmup", "against-zero"},
           {"simulate --file a.csv --warmup 1", "warmup", "file"},
           {"draw --figure naive_pipeline -m 3", "microbatches", "figure"},
           {"draw --figure naive_pipeline --color never", "color", "figure"},
           {"draw --out a.svg --color never", "color", "out"},
           {"partition --profile p.json --flops 1", "flops", "profile"}}) {
    std::string error = "error: pipedream " + line.substr(0, line.find(' '));
    ((error += " --") += flag) += ": has no effect beside --";
    EXPECT_EQ(refused(line), (error += other) += "\n  fix: leave out one of the two\n");
  }
  expect_texts(
      {{refused("draw --show-versions"),
        "error: pipedream draw --show-versions: has no effect without --out\n  fix: add --out\n"},
       {refused("compare --hidden 3"),
        "error: pipedream compare --hidden: has no effect without --against-zero\n  fix: add "
        "--against-zero\n"},
       {refused("partition --split uniform"),
        "error: pipedream partition --split: has no effect without --costs-out\n  fix: add --costs-out\n"},
       {refused("simulate --versions stash"),
        "error: pipedream simulate --versions: 1f1b has one rule\n  fix: leave it out, or choose --schedule "
        "pipedream\n"}});
}

}  // namespace
}  // namespace sc::pipedream
