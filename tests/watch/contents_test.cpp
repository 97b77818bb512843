#include "common/watch/contents.h"

#include <gtest/gtest.h>

#include "tests/support/answers.h"

namespace sc {
namespace {

using At = OpSpan::Clock::time_point;

At at(int us) { return At(std::chrono::microseconds(us)); }

// The events of one step that begins at time 0, in microseconds.
struct Step {
  std::vector<Timeline::Span> spans;
  std::vector<Timeline::Change> changes;
  std::vector<OpSpan> operations;

  void compute(Pass pass, int unit, int begin, int end) {
    spans.push_back({.name = {}, .computed = Computed{pass, unit, 0}, .begin = at(begin), .end = at(end)});
  }
  void act(Pass pass, int micro_batch, int begin, int end) {
    const std::string name = (pass == Pass::forward ? "F" : "B") + std::to_string(micro_batch);
    spans.push_back(
        {.name = name, .computed = Computed{pass, 1, micro_batch}, .begin = at(begin), .end = at(end)});
  }
  void move(CommKind kind, OpPurpose purpose, int unit, int began, int ended) {
    OpSpan op;
    op.op = {.kind = kind, .elements = Elements(64), .ranks = WorldSize(2), .purpose = purpose, .unit = unit};
    op.issued = op.began.emplace(at(began)), op.ended = at(ended);
    operations.push_back(op);
  }
  [[nodiscard]] std::vector<ContentChange> content_changes(const Contents& contents,
                                                           const ModelFacts& model) const {
    return content_changes_of(contents, model, {spans, changes, operations, at(0)});
  }
};

// The changes of one unit's contents as a text, "<us> <extent>" each: "0 free, 5 arriving, 9 whole".
std::string story(const std::vector<ContentChange>& rows, Content what, int unit) {
  std::string text;
  for (const ContentChange& row : rows) {
    if (row.what != what || row.unit != unit) continue;
    const auto us = std::chrono::duration_cast<std::chrono::microseconds>(row.at.time_since_epoch()).count();
    text += (text.empty() ? "" : ", ") + std::to_string(us) + " " + std::string(name_of(row.extent));
    if (row.copies != 1) text += " x" + std::to_string(row.copies);
  }
  return text;
}

constexpr ModelFacts kOneBlock{.last_unit = 2, .tied = true};

TEST(Contents, AGatheredUnitIsWholeUntilItIsGivenUp) {
  Step step;
  step.move(CommKind::all_gather, OpPurpose::parameters, 1, 10, 20);
  step.compute(Pass::forward, 1, 20, 30);
  step.changes.push_back({.unit = 1, .at = at(40)});
  const auto rows = step.content_changes({.parameters = Extent::slice, .states = Extent::slice}, kOneBlock);
  test::expect_texts({{story(rows, Content::parameters, 1), "0 slice, 10 arriving, 20 whole, 40 slice"},
                      {story(rows, Content::states, 1), "0 slice"},
                      {story(rows, Content::activations, 1), "0 free, 20 whole"}});
}

TEST(Contents, ATensorRankNeverHasMoreThanItsPart) {
  Step step;
  step.compute(Pass::forward, 1, 10, 20);
  step.compute(Pass::backward, 1, 20, 30);
  step.compute(Pass::update, 1, 30, 40);
  const auto rows =
      step.content_changes({.parameters = Extent::slice, .states = Extent::slice, .cut = true}, kOneBlock);
  test::expect_texts({{story(rows, Content::parameters, 1), "0 slice"},
                      {story(rows, Content::gradients, 1), "0 free, 20 slice, 40 free"},
                      {story(rows, Content::activations, 1), "0 free, 10 slice, 30 free"}});
}

TEST(Contents, WhatATensorRankSlicesFurtherIsItsPartAllTheWhile) {
  Step step;
  step.move(CommKind::all_gather, OpPurpose::parameters, 1, 1, 2);
  step.compute(Pass::backward, 1, 20, 30);
  step.move(CommKind::reduce_scatter, OpPurpose::gradients, 1, 30, 34);
  step.compute(Pass::update, 1, 40, 50);
  const auto rows =
      step.content_changes({.parameters = Extent::slice, .states = Extent::slice, .cut = true}, kOneBlock);
  test::expect_texts({{story(rows, Content::parameters, 1), "0 slice"},
                      {story(rows, Content::gradients, 1), "0 free, 20 slice, 50 free"}});
}

TEST(Contents, AGradientLeavesWithAllMessagesThatCarryIt) {
  Step step;
  step.compute(Pass::head, 2, 5, 9);  // tied: it writes unit 0's part of the gradient, too
  step.compute(Pass::backward_weights, 1, 10, 20);
  step.move(CommKind::reduce_scatter, OpPurpose::gradients, 1, 20, 24);  // a segment each
  step.move(CommKind::reduce_scatter, OpPurpose::gradients, 1, 25, 30);
  step.compute(Pass::update, 1, 40, 50);
  const auto rows = step.content_changes({.states = Extent::slice}, kOneBlock);
  test::expect_texts({
      {story(rows, Content::gradients, 1), "0 free, 10 whole, 20 leaving, 30 slice, 50 free"},
      {story(rows, Content::gradients, 0), "0 free, 5 whole"},
      {story(rows, Content::parameters, 1), "0 whole"}  // nobody gathers: an update leaves them whole
  });
}

TEST(Contents, AnUpdateLeavesASliceWhereParametersAreGathered) {
  Step step;
  step.move(CommKind::all_gather, OpPurpose::parameters, 1, 1, 2);
  step.compute(Pass::update, 1, 40, 50);
  EXPECT_EQ(story(step.content_changes({.parameters = Extent::slice}, kOneBlock), Content::parameters, 1),
            "0 slice, 1 arriving, 2 whole, 40 slice");
  EXPECT_EQ(story(step.content_changes({.parameters = Extent::slice}, {.last_unit = 2, .alone = true}),
                  Content::parameters, 1),
            "0 whole, 1 arriving, 2 whole");
}

TEST(Contents, AStageKeepsASetForEveryMicroBatchInFlight) {
  Step step;  // of a list without an end: the first backward's forward was in a step before
  step.act(Pass::forward, 4, 10, 20);
  step.act(Pass::backward, 3, 20, 30);
  step.act(Pass::forward, 5, 30, 40);
  step.act(Pass::backward, 4, 40, 50);
  step.changes.push_back({.versions = 2, .at = at(20)});
  const Contents stage{.parts = {{0, 1}}};
  const auto rows = step.content_changes(stage, kOneBlock);
  for (const int unit : {0, 1}) {
    EXPECT_EQ(story(rows, Content::activations, unit),
              "0 whole, 10 whole x2, 30 whole, 30 whole x2, 50 whole");
    EXPECT_EQ(story(rows, Content::parameters, unit), "0 whole, 20 whole x2");
    EXPECT_EQ(story(rows, Content::gradients, unit), "0 free, 20 whole");
  }
  EXPECT_EQ(story(rows, Content::parameters, 2), "");  // another rank's
}

TEST(Contents, WhatBeganBeforeTheStepIsThereWhenItBegins) {
  Step step;
  step.move(CommKind::disk_read, OpPurpose::states, 1, -20, -10);
  step.move(CommKind::disk_write, OpPurpose::states, 1, 30, 40);
  EXPECT_EQ(story(step.content_changes({.states = Extent::free}, kOneBlock), Content::states, 1),
            "0 slice, 40 free");
}

TEST(Contents, WhereNobodyKnowsNothingIsSaid) {
  Step step;
  step.compute(Pass::forward, 1, 20, 30);
  EXPECT_TRUE(step.content_changes({.unknown = "several units in a bucket"}, kOneBlock).empty());
}

}  // namespace
}  // namespace sc
