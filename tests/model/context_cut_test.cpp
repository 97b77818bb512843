#include "common/model/context_cut.h"

#include <gtest/gtest.h>

#include <map>
#include <utility>

namespace sc {
namespace {

class ContextCuts : public testing::TestWithParam<Parts> {
 protected:
  static constexpr std::int64_t kTokens = 96;
};

// Every chunk of queries meets its own keys and all before it, once, on the rank that has the queries.
TEST_P(ContextCuts, EveryPairIsComputedOnce) {
  for (const int ranks : {1, 2, 3, 4, 8}) {
    std::map<std::pair<int, int>, int> times;
    for (int rank = 0; rank < ranks; ++rank) {
      const ContextCut cut{rank, ranks, GetParam()};
      for (const ChunkPair& pair : cut.pairs()) {
        ++times[{pair.query, pair.key}];
        const std::vector<int> mine = cut.chunks_of(rank), theirs = cut.chunks_of(cut.source(pair.hop));
        EXPECT_EQ(mine[static_cast<std::size_t>(cut.place_of(pair.query))], pair.query);
        EXPECT_EQ(theirs[static_cast<std::size_t>(cut.place_of(pair.key))], pair.key);
      }
    }
    const int chunks = ContextCut{0, ranks, GetParam()}.chunks_of_row();
    EXPECT_EQ(times.size(), static_cast<std::size_t>(chunks * (chunks + 1) / 2));
    for (const auto& [pair, count] : times) {
      EXPECT_LE(pair.second, pair.first);
      EXPECT_EQ(count, 1) << pair.first << " " << pair.second;
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

TEST(ContextCut, ARingOfTwoInOrder) {
  const std::vector<ChunkPair> first = {{0, 0, 0}, {0, 3, 0}, {0, 3, 3}, {1, 3, 1}, {1, 3, 2}};
  const std::vector<ChunkPair> second = {{0, 1, 1}, {0, 2, 1}, {0, 2, 2}, {1, 1, 0}, {1, 2, 0}};
  EXPECT_EQ((ContextCut{0, 2}.pairs()), first);
  EXPECT_EQ((ContextCut{1, 2}.pairs()), second);
}

}  // namespace
}  // namespace sc
