#include "common/model/context_cut.h"

#include <algorithm>

namespace sc {

std::vector<int> ContextCut::chunks_of(int rank) const {
  if (chunks_of_rank() == 1) return {rank};
  return {rank, 2 * ranks - 1 - rank};
}

std::vector<ChunkPair> ContextCut::pairs() const {
  std::vector<ChunkPair> pairs;
  for (int hop = 0; hop < ranks; ++hop)
    for (const int query : chunks_of(rank))
      for (const int key : chunks_of(source(hop)))
        if (key <= query) pairs.push_back({hop, query, key});
  return pairs;
}

std::int64_t ContextCut::token_pairs(std::int64_t tokens) const {
  const std::int64_t m = tokens / chunks_of_row();
  std::int64_t sum = 0;
  for (const ChunkPair& pair : pairs()) sum += pair.diagonal() ? m * (m + 1) / 2 : m * m;
  return sum;
}

double balance_of(ContextCut cut, std::int64_t tokens) {
  std::int64_t sum = 0, most = 0;
  for (cut.rank = 0; cut.rank < cut.ranks; ++cut.rank) {
    sum += cut.token_pairs(tokens);
    most = std::max(most, cut.token_pairs(tokens));
  }
  return static_cast<double>(sum) / static_cast<double>(cut.ranks * most);
}

}  // namespace sc
