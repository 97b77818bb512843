// Tests the default screen with made-up plans and times.
#include "common/records/screen.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "tests/support/answers.h"

namespace sc {
namespace {

using test::expect_parts;
using test::expect_texts;

Environment variables(const std::map<std::string, std::string>& values) {
  return [values](const std::string& name) {
    const auto found = values.find(name);
    return found == values.end() ? std::nullopt : std::optional(found->second);
  };
}

RankPlan some_plan() {
  const Formula P("P", 1'000'000);
  RankPlan plan;
  plan.memory.add({Purpose::parameters, "params", P, DType::f32});
  plan.memory.add({Purpose::momentum, "momentum", P, DType::f32});
  plan.memory.add({Purpose::variance, "variance", P, DType::f32});
  plan.memory.add({Purpose::workspace, "workspace", Formula("work", 600) + Formula("head", 400)});
  plan.operations.add({CommKind::all_reduce, DType::f32, Elements(1'000'000), WorldSize{2}});
  return plan;
}

std::int64_t lines(const std::string& text) { return std::count(text.begin(), text.end(), '\n'); }
bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(Look, IsPlainWhereNoTerminalIs) {
  const Look look = look_of(false, variables({{"LANG", "en_GB.UTF-8"}, {"TERM", "xterm"}}));
  EXPECT_FALSE(look.utf8 || look.colour);
}

TEST(Look, FollowsTheLocaleAndNoColor) {
  using Variables = std::map<std::string, std::string>;
  const std::map<Variables, bool> utf8 = {{Variables{{"LANG", "en_GB.UTF-8"}}, true},
                                          {Variables{{"LC_CTYPE", "C.utf8"}, {"LANG", "C"}}, true},
                                          {Variables{{"LC_ALL", "C"}, {"LANG", "en_GB.UTF-8"}}, false},
                                          {Variables{}, false}};
  // no-color.org: NO_COLOR counts only where it is not empty.
  const std::map<Variables, bool> colour = {{Variables{{"TERM", "xterm"}}, true},
                                            {Variables{{"NO_COLOR", ""}}, true},
                                            {Variables{{"NO_COLOR", "1"}}, false},
                                            {Variables{{"TERM", "dumb"}}, false}};
  for (const auto& [values, expected] : utf8)
    EXPECT_EQ(look_of(true, variables(values)).utf8, expected) << ::testing::PrintToString(values);
  for (const auto& [values, expected] : colour)
    EXPECT_EQ(look_of(true, variables(values)).colour, expected) << ::testing::PrintToString(values);
}

TEST(Formulas, AddUpWhereTheyAreMultiplesOfTheSame) {
  expect_texts({{sum_of_formulas({"4 P", "4 P"}), "8 P"},
                {sum_of_formulas({"4 P / N", "4 P / N", "2 P / N"}), "10 P / N"},
                {sum_of_formulas({"work + head"}), "work + head"},
                {sum_of_formulas({"4 P", "4 P / N"}), ""},
                {sum_of_formulas({"4 P + 8", "4 P + 8"}), ""},  // not 8 P + 8
                {sum_of_formulas({"work", "work"}), ""},
                {sum_of_formulas({"8", "8"}), ""},
                {sum_of_formulas({}), ""}});
}

TEST(Predicted, HasALineForEachKindOfBytes) {
  EXPECT_EQ(format_predicted({some_plan()}, {}),
            "PREDICTED for each rank                              (every buffer: --plan)\n"
            "  parameters   4.00 MB  ########          4 P\n"
            "  optimizer    8.00 MB  ################  8 P\n"
            "  other        1.00 kB  #                 work + head\n"
            "  total       12.00 MB     and 1 all-reduce, 4.00 MB sent per step\n");
}

TEST(Predicted, ShowsWhatLiesBesideTheDevice) {
  RankPlan plan = some_plan();
  plan.memory.add({Purpose::master, "master", Formula("P", 6'000'000), DType::f32, Place::host});
  plan.operations.add({CommKind::to_host, DType::f32, Elements(1'000'000), WorldSize{1}});
  expect_parts(
      format_predicted({plan}, {}),
      {"\n  device      12.00 MB  ########          all of the above\n",
       "\n  host        24.00 MB  ################  optimizer\n", "4.00 MB sent, 4.00 MB copied per step\n"});
}

TEST(Predicted, HasALineForEachRankWhereTheyDiffer) {
  RankPlan more = some_plan();
  more.memory.add({Purpose::stash, "older", Formula("P", 3'000'000), DType::f32});
  RankPlan less = some_plan();
  more.ranks.count = 2, less.ranks = {2, 2, 1};
  const std::string text = format_predicted({more, less}, {});
  expect_parts(text, {"\n  ranks 0-1  ", "\n  ranks 2-3  ", "older weights"});
  EXPECT_EQ(lines(text), 5);
}

TEST(Screen, IsAsciiUnlessTheTerminalIsNot) {
  for (const Look look : {Look{}, Look{.utf8 = true}, Look{.colour = true}}) {
    const std::string text = format_predicted({some_plan()}, look) +
                             format_checks(some_plan(), Rank{0}, std::nullopt, 1, look) + bar(3, 4, look);
    const bool ascii = std::ranges::all_of(text, [](char c) { return static_cast<unsigned char>(c) < 0x80; });
    EXPECT_EQ(ascii, !look.utf8);
    EXPECT_EQ(has(text, "\x1b"), look.colour);
  }
}

TEST(Checks, SayHowOftenReplicasWereCompared) {
  EXPECT_EQ(format_checks(some_plan(), Rank{0}, std::nullopt, 8, {}),
            "  ok  12,001,000 bytes held, 4 purposes   as predicted\n"
            "  ok  1 operation, 4,000,000 bytes sent   as predicted\n"
            "  ok  replicas equal bit for bit          8 checks\n");
  EXPECT_EQ(lines(format_checks(some_plan(), Rank{0}, std::nullopt, 0, {})), 2) << "no replicas, no line";
}

TEST(Timelines, DrawMeasuredOverSimulatedOnOneScale) {
  Timetable table;
  table.rows = {
      {"measured", 0.072, 0.5, "one step"}, {"simulated", 0.036, 0.25, ""}, {"formula", 0.02, 0.1, ""}};
  table.ranks = {{{"F0", 0, 0.036, 0, 0.018}, {"B0", 0.036, 0.072, 0.018, 0.036}}};
  const std::string text = format_timelines(table);
  expect_parts(text,
               {"    stage 0  " + std::string(36, 'F') + std::string(36, 'B') + "\n",
                "    stage 0  " + std::string(18, 'F') + std::string(18, 'B') + std::string(36, '.') + "\n",
                "F forward, B backward, . idle; a column is 1.00 ms\n"});
  EXPECT_EQ(lines(text), 6);
}

TEST(Timelines, OfNothingAreNothing) { EXPECT_EQ(format_timelines({}), ""); }

TEST(Ages, AreWhatMoreThanATwentiethOfTheMicroBatchesHad) {
  expect_texts({{format_ages({{{{0, 1}, {3, 19}}, {{0, 1}, {3, 19}}}, {{{0, 10}}, {{0, 10}}}}),
                 "  gradients are of weights 3, 0 updates old (ranks 0 to 1)\n"},
                {format_ages({{{{0, 9}, {1, 3}}, {{0, 9}, {1, 3}}}, {{{0, 12}}, {{0, 12}}}}),
                 "  gradients are of weights 0 or 1, 0 updates old (ranks 0 to 1)\n"},
                {format_ages({}), ""}});
  EXPECT_TRUE(has(format_ages({{{{3, 9}}, {{0, 9}}}}), "3 updates old in forward, 0 in backward (rank 0)"));
}

TEST(Crowd, IsSaidWhereRanksShareCores) {
  expect_texts({{format_crowd(4, 2, true),
                 "  4 ranks share 2 cores: stages wait for a core; --pace shows the schedule\n"},
                {format_crowd(4, 2, false), "  4 ranks share 2 cores: stages wait for a core\n"},
                {format_crowd(2, 2, true), ""}});
}

}  // namespace
}  // namespace sc
