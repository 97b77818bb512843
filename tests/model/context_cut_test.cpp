#include "common/model/context_cut.h"

#include <gtest/gtest.h>

#include <map>
#include <utility>

namespace sc {
namespace {

class ContextCuts : public testing::TestWithParam<Parts> {
 protected:
  static constexpr std::int64_t kTokens = 96;
  /// Where in the row the token lies that is `at` in what its rank keeps, in chunks of m.
  static std::int64_t in_row(const ContextCut& cut, int rank, std::int64_t m, std::int64_t at) {
    return cut.chunks_of(rank)[static_cast<std::size_t>(at / m)] * m + at % m;
  }
};

// Every token meets itself and all before it in the row, once, on the rank that has its queries.
TEST_P(ContextCuts, EveryPairIsComputedOnce) {
  for (const int ranks : {1, 2, 3, 4, 8}) {
    std::map<std::pair<std::int64_t, std::int64_t>, int> times;
    for (int rank = 0; rank < ranks; ++rank) {
      const ContextCut cut{rank, ranks, GetParam()};
      const std::int64_t m = kTokens / cut.chunks_of_row();
      for (const AttentionCall& call : cut.calls(m))
        for (std::int64_t q = call.queries.begin; q < call.queries.end; ++q)
          for (std::int64_t k = call.keys.begin; k < (call.causal ? q + 1 : call.keys.end); ++k)
            ++times[{in_row(cut, rank, m, q), in_row(cut, cut.source(call.hop), m, k)}];
    }
    EXPECT_EQ(times.size(), static_cast<std::size_t>(kTokens * (kTokens + 1) / 2));
    for (const auto& [pair, count] : times) {
      EXPECT_LE(pair.second, pair.first);
      EXPECT_LT(pair.first, kTokens);
      EXPECT_EQ(count, 1) << pair.first << " " << pair.second;
    }
  }
}

// What is merged by calls after the second, and what is written by the second, must have been begun.
TEST_P(ContextCuts, EarlierCallsHaveTheQueriesOfLaterOnes) {
  for (const int ranks : {1, 2, 3, 4, 8})
    for (int rank = 0; rank < ranks; ++rank) {
      const auto calls = ContextCut{rank, ranks, GetParam()}.calls(3);
      EXPECT_LE(calls.size(), static_cast<std::size_t>(ranks));
      for (std::size_t hop = 0; hop < calls.size(); ++hop) {
        EXPECT_EQ(calls[hop].hop, static_cast<int>(hop));
        EXPECT_EQ(calls[hop].causal, hop == 0);
        EXPECT_EQ(calls[hop].keys.begin, 0);
        if (hop == 0) continue;
        EXPECT_LE(calls[hop - 1].queries.begin, calls[hop].queries.begin);
        EXPECT_EQ(calls[hop - 1].queries.end, calls[hop].queries.end);
      }
    }
}

TEST_P(ContextCuts, ARowsPairsAreSharedOut) {
  for (const int ranks : {1, 2, 3, 4}) {
    std::int64_t sum = 0;
    for (int rank = 0; rank < ranks; ++rank) sum += ContextCut{rank, ranks, GetParam()}.token_pairs(kTokens);
    EXPECT_EQ(sum, kTokens * (kTokens + 1) / 2);
  }
}

INSTANTIATE_TEST_SUITE_P(All, ContextCuts, testing::Values(Parts::zigzag, Parts::contiguous));

// The published counts: n = T/c tokens and m = T/2c of a chunk.
TEST(ContextCut, CountsByFormula) {
  constexpr std::int64_t kTokens = 1024;
  for (const int c : {2, 4, 8}) {
    const std::int64_t n = kTokens / c, m = n / 2;
    for (int r = 0; r < c; ++r) {
      EXPECT_EQ((ContextCut{r, c, Parts::contiguous}.token_pairs(kTokens)), n * (n + 1) / 2 + r * n * n);
      EXPECT_EQ((ContextCut{r, c, Parts::zigzag}.token_pairs(kTokens)), m * (m + 1) + (2 * c - 1) * m * m);
    }
    EXPECT_EQ(balance_of({0, c, Parts::zigzag}, kTokens), 1.0);
    EXPECT_NEAR(balance_of({0, c, Parts::contiguous}, kTokens), c / (2.0 * c - 1), 0.01);
  }
}

TEST(ContextCut, ARingOfThreeInOrder) {
  const Range all{0, 10}, first{0, 5}, second{5, 10};
  const AttentionCall own{0, all, all, true};
  using Calls = std::vector<AttentionCall>;
  EXPECT_EQ((ContextCut{0, 3}.calls(5)), (Calls{own, {1, second, all, false}, {2, second, all, false}}));
  EXPECT_EQ((ContextCut{1, 3}.calls(5)), (Calls{own, {1, all, first, false}, {2, second, all, false}}));
  EXPECT_EQ((ContextCut{2, 3}.calls(5)), (Calls{own, {1, all, first, false}, {2, all, first, false}}));
  EXPECT_EQ((ContextCut{1, 3, Parts::contiguous}.calls(10)), (Calls{own, {1, all, all, false}}));
}

}  // namespace
}  // namespace sc
