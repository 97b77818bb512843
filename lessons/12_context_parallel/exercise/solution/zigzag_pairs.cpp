#include "lessons/12_context_parallel/exercise/zigzag_pairs.h"

namespace sc {

std::vector<ChunkPair> zigzag_pairs(int rank, int ranks) {
  std::vector<ChunkPair> pairs;
  for (int hop = 0; hop < ranks; ++hop) {
    const int source = (rank - hop + ranks) % ranks, last = 2 * ranks - 1;
    for (const int query : {rank, last - rank})
      for (const int key : {source, last - source})
        if (key <= query) pairs.push_back({hop, query, key});
  }
  return pairs;
}

}  // namespace sc
