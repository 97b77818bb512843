#include "common/data/rows.h"

#include <gtest/gtest.h>

#include "tests/support/answers.h"

namespace sc {
namespace {

constexpr TokenId kEndOfDocument = 9;

struct Row {
  std::vector<std::int64_t> tokens, targets;
  bool operator==(const Row&) const = default;
};

std::vector<Row> rows_of(const std::vector<TokenId>& tokens, Packing packing, std::int64_t sequence) {
  const Rows rows(tokens, {.packing = packing, .sequence = sequence, .end_of_text = kEndOfDocument});
  std::vector<Row> out;
  for (RowIndex row = 0; row < rows.count(); ++row) {
    // The row is filled beforehand with a value that occurs nowhere, so that an element that is not written
    // shows.
    Row one{std::vector<std::int64_t>(static_cast<std::size_t>(sequence), 777),
            std::vector<std::int64_t>(static_cast<std::size_t>(sequence), 777)};
    rows.fill(row, one.tokens, one.targets);
    std::int64_t counted = 0;
    for (const std::int64_t target : one.targets) counted += target >= 0 ? 1 : 0;
    EXPECT_EQ(rows.targets(row), counted);
    out.push_back(one);
  }
  return out;
}

TEST(Rows, WhatNoRowHasIsCounted) {
  const auto unread = [](const std::vector<TokenId>& tokens, Packing packing) {
    return Rows(tokens, {.packing = packing, .sequence = 2, .end_of_text = kEndOfDocument}).unread();
  };
  test::expect_counts({
      {unread({1, 2, 3, 4, 5}, Packing::pack), 0},
      {unread({1, 2, 3, 4}, Packing::pack), 1},
      {unread({1, 2}, Packing::pack), 2}  // Not one row.
  });
  for (const Packing packing : {Packing::pad_masked, Packing::pad_unmasked}) {
    EXPECT_EQ(unread({1, 2, 3, 9, 4, 9}, packing), 0) << "the last target is the third token";
    EXPECT_EQ(unread({1, 2, 3, 4, 5, 9, 9, 1, 2, 3, 4}, packing), 3);
  }
}

TEST(Pack, RowsFollowEachOtherAndShareOneToken) {
  const std::vector<TokenId> seven = {1, 2, 3, 4, 5, 6, 7};
  EXPECT_EQ(rows_of(seven, Packing::pack, 3),
            (std::vector<Row>{{{1, 2, 3}, {2, 3, 4}}, {{4, 5, 6}, {5, 6, 7}}}));
  EXPECT_EQ(rows_of(seven, Packing::pack, 6).size(), 1U);
  EXPECT_EQ(rows_of(seven, Packing::pack, 7).size(), 0U);  // T + 1 tokens are needed
  EXPECT_EQ(rows_of({1, 9, 2}, Packing::pack, 2),
            (std::vector<Row>{{{1, 9}, {9, 2}}}));  // a token like any other
  EXPECT_TRUE(rows_of({}, Packing::pack, 2).empty());
}

TEST(PadMasked, ARowIsADocumentAndItsEndAndNothingElseCounts) {
  EXPECT_EQ(rows_of({1, 2, 9, 3, 4, 5, 6, 7, 9}, Packing::pad_masked, 4),
            (std::vector<Row>{{{1, 2, 9, 9}, {2, 9, -1, -1}}, {{3, 4, 5, 6}, {4, 5, 6, 7}}}));
  // A document of exactly T tokens has the end of text as its last target.
  EXPECT_EQ(rows_of({1, 2, 3, 4}, Packing::pad_masked, 4), (std::vector<Row>{{{1, 2, 3, 4}, {2, 3, 4, 9}}}));
}

TEST(PadUnmasked, TheFillingCounts) {
  EXPECT_EQ(rows_of({1, 2, 9, 3, 4, 5, 6, 7, 9}, Packing::pad_unmasked, 4),
            (std::vector<Row>{{{1, 2, 9, 9}, {2, 9, 9, 9}}, {{3, 4, 5, 6}, {4, 5, 6, 7}}}));
}

TEST(Documents, EmptyOnesAreSkippedAndTheEndMayStandFirst) {
  const std::vector<Row> two = {{{1, 9}, {9, -1}}, {{2, 3}, {3, 9}}};
  EXPECT_EQ(rows_of({9, 1, 9, 9, 9, 2, 3}, Packing::pad_masked, 2), two);
  EXPECT_EQ(rows_of({1, 9, 2, 3, 9, 9}, Packing::pad_masked, 2), two);
  EXPECT_TRUE(rows_of({9, 9}, Packing::pad_masked, 2).empty());
}

}  // namespace
}  // namespace sc
