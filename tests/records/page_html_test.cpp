#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "common/records/page.h"
#include "tests/support/json_values.h"

namespace sc {
namespace {

using test::expect_values;
using Json = nlohmann::json;
using At = OpSpan::Clock::time_point;

constexpr const char* kFrame = R"(<a><script id="data" type="application/json">{}</script><b>)";

GptConfig model() {
  GptConfig config;
  config.layers = 1, config.width = 64, config.heads = 2, config.vocab = 64, config.context = 16;
  return config;
}

ParamLayout layout_of(const TensorCut& cut = {}) { return {model(), WorldSize{1}, cut}; }

At at(int us) { return At(std::chrono::microseconds(us)); }

RunRecord record_of(int ranks) {
  RunRecord record;
  record.lesson = "01_data_parallel";
  record.world = ranks;
  for (int rank = 0; rank < ranks; ++rank) {
    RankRecord& added = record.ranks.emplace_back();
    added.rank = Rank{rank}, added.host = "here";
  }
  return record;
}

// Marks of two steps, each with `spans` spans.
RankMarks marks_of(int spans) {
  RankMarks marks{{{2, at(1'000), at(9'000)}, {3, at(9'000), at(17'000)}}, {}, {}, {}};
  for (int step = 0; step < 2; ++step)
    for (int i = 0; i < spans; ++i)
      marks.spans.push_back({.name = {},
                             .computed = Computed{Pass::forward, 1, 0},
                             .begin = at(1'000 + 8'000 * step + i),
                             .end = at(1'001 + 8'000 * step + i)});
  return marks;
}

Json data_of(const RunRecord& record, const std::vector<std::string>& ranks) {
  const ParamLayout layout(model(), WorldSize{record.world});
  const std::string html = html_of({"Why?", record, layout, ranks, {}}, kFrame);
  const std::size_t begin = html.find("json\">") + 6, end = html.find("</script>");
  EXPECT_EQ(html.substr(0, 3) + html.substr(end), "<a></script><b>");
  return Json::parse(html.substr(begin, end - begin));
}

TEST(Page, NothingInTheDataEndsTheScript) {
  RunRecord record = record_of(1);
  record.command = "run --out '</script><script>alert(1)</script>' \"\xff\"";
  const Json data = data_of(record, {text_of(Rank{0}, marks_of(1), {}, {}, layout_of())});
  EXPECT_EQ(data["record"]["command"], "run --out '</script><script>alert(1)</script>' \"\xEF\xBF\xBD\"");
}

TEST(Page, TimesBeginWithTheFirstStepAndWaitsAreNotComputed) {
  RankMarks marks = marks_of(1);
  marks.spans[0].end = at(1'100);
  OpSpan op;
  op.op = {.kind = CommKind::all_reduce,
           .dtype = DType::f32,
           .elements = Elements(10),
           .purpose = OpPurpose::sums};
  op.step = 2, op.issued = at(1'010), op.wait_began = at(1'020), op.wait_ended = op.ended.emplace(at(1'050));
  marks.operations.push_back(op);
  const Json rank =
      data_of(record_of(1), {text_of(Rank{0}, marks, {}, {}, layout_of())})["marks"]["ranks"][0];
  EXPECT_EQ(rank["spans"].size(), 3u);
  expect_values(rank,
                {{"/begins", {0.0, 8'000.0, 16'000.0}},
                 {"/spans/0", {"compute", "forward", 1, 0, 0.0, 20.0, ""}},
                 {"/spans/1", {"compute", "forward", 1, 0, 50.0, 50.0, ""}},
                 {"/operations/0", {"all_reduce", "sums", -1, -1, 40, 0, 10.0, -1, 50.0, 20.0, 50.0, 2}}});
}

// A wait that goes on after the marked steps is cut at their end; a wait that begins after them is left out.
TEST(Page, AWaitEndsWithTheMarkedSteps) {
  RankMarks marks = marks_of(1);
  for (const int began : {16'500, 17'100}) {
    OpSpan op;
    op.op = {.kind = CommKind::all_reduce, .elements = Elements(10)};
    op.step = 3, op.issued = at(16'400), op.wait_began = at(began);
    op.wait_ended = op.ended.emplace(at(17'500));
    marks.operations.push_back(op);
  }
  const Json data = data_of(record_of(1), {text_of(Rank{0}, marks, {}, {}, layout_of())});
  expect_values(data["marks"]["ranks"][0]["operations"], {{"/0/8", 16'500.0},  // the operation itself
                                                          {"/0/9", 15'500.0},
                                                          {"/0/10", 16'000.0},
                                                          {"/1/9", -1},
                                                          {"/1/10", -1}});
}

TEST(Page, SaysTheGroupOfAnOperationThatIsNotTheWorlds) {
  RankMarks marks = marks_of(1);
  for (const int ranks : {4, 2, 1}) {
    OpSpan op;
    op.op = {.kind = CommKind::all_reduce, .elements = Elements(10), .ranks = WorldSize{ranks}, .stride = 2};
    op.step = 2, op.issued = at(1'010);
    marks.operations.push_back(op);
  }
  const Json data = data_of(record_of(4), {text_of(Rank{0}, marks, {}, {}, layout_of())});
  const Json& rows = data["marks"]["ranks"][0]["operations"];
  EXPECT_EQ(rows[0].size(), 12u);
  EXPECT_EQ(rows[2].size(), 12u);
  expect_values(data, {{"/marks/ranks/0/operations/1/12", 2},
                       {"/marks/ranks/0/operations/1/13", 2},
                       {"/mesh", Json::parse(R"([["stage",1],["data",1],["context",1],["tensor",1]])")}});
}

TEST(Page, ATensorRankSaysHowMuchItsPartsAre) {
  const Contents cut{.cut = true};
  const Json data = data_of(record_of(1), {text_of(Rank{0}, marks_of(1), cut, {}, layout_of({1, 2}))});
  EXPECT_EQ(data["sizes"][1], 12 * 64 * 64 + 13 * 64);
  const int cut_elements = 6 * 64 * 64 + 3 * 32 + 128, padding = 32;
  EXPECT_EQ(data["marks"]["ranks"][0]["parts"][1], cut_elements + padding + 6 * 64);
  const Json whole = data_of(record_of(1), {text_of(Rank{0}, marks_of(1), {}, {}, layout_of())});
  EXPECT_FALSE(whole["marks"]["ranks"][0].contains("parts"));
}

TEST(Page, OfTooManyMarksOneStepIsLeftThenThreeRanks) {
  std::vector<std::string> ranks;
  for (int rank = 0; rank < 8; ++rank)
    ranks.push_back(text_of(Rank{rank}, marks_of(600), {}, {}, layout_of()));
  const Json one_step = data_of(record_of(8), ranks)["marks"];  // 9,600, then 4,800
  EXPECT_EQ(one_step["steps"], Json({2}));
  EXPECT_EQ(one_step["ranks"].size(), 8u);
  EXPECT_EQ(one_step["ranks"][0]["spans"].size(), 600u);
  EXPECT_NE(one_step["left_out"], "");
  ranks.clear();
  for (int rank = 0; rank < 8; ++rank)
    ranks.push_back(text_of(Rank{rank}, marks_of(700), {}, {}, layout_of()));
  const Json three_ranks = data_of(record_of(8), ranks)["marks"];  // 11,200, then 5,600
  EXPECT_EQ(three_ranks["ranks"].size(), 3u);
  expect_values(three_ranks, {{"/ranks/0/rank", 0}, {"/ranks/1/rank", 1}, {"/ranks/2/rank", 7}});
}

TEST(Page, LongRunsAreThinnedAndKeepTheirLastStep) {
  RunRecord record = record_of(1);
  for (int step = 0; step < 20'001; ++step) record.steps.push_back({.step = step, .loss = 1.0 / (1 + step)});
  record.steps[7].validation_loss = 3.0;
  const Json steps = data_of(record, {text_of(Rank{0}, {}, {}, {}, layout_of())})["steps"];
  EXPECT_LE(steps["step"].size(), 2'001u);
  EXPECT_EQ(steps["step"].back(), 20'000);
  EXPECT_EQ(steps["loss"].size(), steps["step"].size());
  EXPECT_EQ(steps["validation"], Json({{7, 3.0}}));
}

TEST(Page, SaysEverythingThatItLeavesOut) {
  RunRecord record = record_of(2);
  record.ranks[1].host = "there";
  const Contents unknown{.unknown = "a bucket carries several units"};
  const std::string left_out =
      data_of(record, {text_of(Rank{0}, marks_of(1), unknown, {}, layout_of()),
                       text_of(Rank{1}, marks_of(1), unknown, {}, layout_of())})["marks"]["left_out"];
  EXPECT_NE(left_out.find("a bucket carries several units"), std::string::npos);
  EXPECT_NE(left_out.find("clocks"), std::string::npos);
}

TEST(Page, ARunWithoutMarksHasNone) {
  const Json data = data_of(record_of(1), {text_of(Rank{0}, {}, {}, {}, layout_of())});
  EXPECT_TRUE(data["marks"].empty());
  EXPECT_EQ(data["units"], Json({"embedding", "block 1", "head"}));
}

TEST(Page, AFrameWithoutAPlaceForDataIsNone) {
  const RunRecord record = record_of(1);
  const ParamLayout layout(model(), WorldSize{1});
  EXPECT_THROW(html_of({"Why?", record, layout, {}, {}}, "<html>"), std::runtime_error);
}

}  // namespace
}  // namespace sc
