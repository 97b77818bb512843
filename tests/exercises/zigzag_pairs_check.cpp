#include <map>
#include <utility>

#include "common/model/context_cut.h"
#include "lessons/12_context_parallel/exercise/zigzag_pairs.h"
#include "tests/exercises/check.h"

namespace sc::exercise {
namespace {

constexpr std::int64_t kChunk = 8;  // tokens

std::string text(const ChunkPair& pair) {
  return "hop " + std::to_string(pair.hop) + ": queries of chunk " + std::to_string(pair.query) +
         ", keys of chunk " + std::to_string(pair.key);
}

void check_ranks(int ranks) {
  const int chunks = 2 * ranks;
  const auto where = [&](int rank) {
    return std::to_string(ranks) + " ranks, rank " + std::to_string(rank) + ": ";
  };
  std::vector<std::vector<ChunkPair>> lists;
  std::map<int, int> has;  // the rank of each chunk, by its queries
  for (int rank = 0; rank < ranks; ++rank) {
    lists.push_back(zigzag_pairs(rank, ranks));
    for (const ChunkPair& pair : lists.back()) {
      require(
          0 <= pair.hop && pair.hop < ranks && 0 <= pair.key && pair.key <= pair.query && pair.query < chunks,
          where(rank) + text(pair) + ": no such hop or chunk, or keys that come later");
      require(has.emplace(pair.query, rank).first->second == rank,
              where(rank) + text(pair) + ": these queries are another rank's, too");
    }
  }
  std::map<std::pair<int, int>, int> met;
  for (int rank = 0; rank < ranks; ++rank)
    for (const ChunkPair& pair : lists[static_cast<std::size_t>(rank)]) {
      require(has.contains(pair.key) && has[pair.key] == ContextCut{rank, ranks}.source(pair.hop),
              where(rank) + text(pair) + ": these keys are not there then");
      require(++met[{pair.query, pair.key}] == 1, where(rank) + text(pair) + ": they have met before");
    }
  for (int query = 0; query < chunks; ++query)
    for (int key = 0; key <= query; ++key)
      require(met.contains({query, key}), std::to_string(ranks) + " ranks: queries of chunk " +
                                              std::to_string(query) + " never meet keys of chunk " +
                                              std::to_string(key));
  for (int rank = 0; rank < ranks; ++rank) {
    std::int64_t count = 0;
    for (const ChunkPair& pair : lists[static_cast<std::size_t>(rank)])
      count += pair.query == pair.key ? kChunk * (kChunk + 1) / 2 : kChunk * kChunk;
    const std::int64_t fair = ContextCut{rank, ranks}.token_pairs(chunks * kChunk);
    require(count == fair, where(rank) + "it has " + std::to_string(count) + " pairs of tokens; " +
                               std::to_string(fair) + " are its share of a row of " +
                               std::to_string(chunks * kChunk));
  }
}

std::string check() {
  for (const int ranks : {2, 3, 4, 8}) check_ranks(ranks);
  return "2, 3, 4 and 8 ranks: every pair is computed once, and each rank has as many as any other";
}

}  // namespace

const Exercise kExercise{"zigzag_pairs",
                         "a chunk's queries meet as many chunks of keys as stand before it: which two chunks "
                         "have the same sum on every rank?",
                         check};

}  // namespace sc::exercise
