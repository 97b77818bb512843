// Tests that the tables of settings have every pair of values of every two options.
#include "tests/support/pairwise.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <utility>

namespace sc::test {
namespace {

const std::vector<std::vector<int>> kTables = {
    {1, 1}, {2, 2, 2}, {3, 1, 4}, {2, 3, 4, 5}, {4, 2, 2, 3, 5, 2, 6, 2, 2}, {4, 2, 2, 3, 5, 4, 2, 4, 2, 2}};

std::string text(const std::vector<int>& counts) {
  std::string out;
  for (const int count : counts) out += std::to_string(count) + " ";
  return out;
}

TEST(EveryPair, IsInSomeRow) {
  for (const std::vector<int>& counts : kTables) {
    const std::vector<PairwiseRow> rows = every_pair(counts);
    for (std::size_t a = 0; a < counts.size(); ++a)
      for (std::size_t b = a + 1; b < counts.size(); ++b) {
        std::set<std::pair<int, int>> found;
        for (const PairwiseRow& row : rows) found.insert({row.at(a), row.at(b)});
        EXPECT_EQ(found.size(), static_cast<std::size_t>(counts[a] * counts[b]))
            << "options " << a << " and " << b << " of " << text(counts);
      }
    for (const PairwiseRow& row : rows) {
      ASSERT_EQ(row.size(), counts.size());
      for (std::size_t option = 0; option < counts.size(); ++option) {
        EXPECT_GE(row[option], 0);
        EXPECT_LT(row[option], counts[option]);
      }
    }
  }
}

// The two longest options need the product of their counts; a table twice as long repeats itself.
TEST(EveryPair, TakesFewRows) {
  for (const std::vector<int>& counts : kTables) {
    std::vector<int> longest = counts;
    std::sort(longest.rbegin(), longest.rend());
    const auto least = static_cast<std::size_t>(longest[0] * longest[1]);
    EXPECT_GE(every_pair(counts).size(), least) << text(counts);
    EXPECT_LE(every_pair(counts).size(), 2 * least) << text(counts);
    EXPECT_EQ(every_pair(counts), every_pair(counts));
  }
}

TEST(EveryPair, IsAskedForByName) {
  const auto rows = Choose::every_pair_of([](Choose& choose) {
    const int number = choose("number", {7, 8, 9});
    const bool flag = choose("flag", {true, false});
    return std::pair(std::pair(number, flag), choose.text());
  });
  ASSERT_EQ(rows.size(), 6U);
  std::set<std::pair<int, bool>> found;
  for (const auto& [row, text] : rows) found.insert(row);
  EXPECT_EQ(found.size(), 6U);
  EXPECT_EQ(rows[0].second, "number 7, flag 1");
}

}  // namespace
}  // namespace sc::test
