#include "lessons/12_context_parallel/exercise/zigzag_pairs.h"

namespace sc {

/// What a rank computes of rows that are cut into 2 `ranks` chunks, of which it has two: hop by hop which of
/// its chunks of queries meet which chunks of keys (ChunkPair).
///   Whole  over all ranks every chunk of queries meets its own keys and those of each earlier chunk, once
///   Hops   at hop k the keys of rank (rank - k) mod `ranks` are here, those of its two chunks
///   Fair   every rank has as many pairs of tokens: m (m + 1) / 2 where a chunk of m tokens meets itself, m^2
///          elsewhere
std::vector<ChunkPair> zigzag_pairs(int rank, int ranks) {
  // TODO: this deals out neighbours, 2 r and 2 r + 1. Nothing is missing, and the last rank has most to do.
  std::vector<ChunkPair> pairs;
  for (int hop = 0; hop < ranks; ++hop) {
    const int source = (rank - hop + ranks) % ranks;
    for (const int query : {2 * rank, 2 * rank + 1})
      for (const int key : {2 * source, 2 * source + 1})
        if (key <= query) pairs.push_back({hop, query, key});
  }
  return pairs;
}

}  // namespace sc
