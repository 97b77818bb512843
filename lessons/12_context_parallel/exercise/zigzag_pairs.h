// Exercise of lesson 12; what is asked for stands in zigzag_pairs.cpp.
#pragma once

#include <vector>

namespace sc {

/// Queries of one chunk of the row meet keys of another, or of the same, when these are here.
struct ChunkPair {
  int hop, query, key;
};

std::vector<ChunkPair> zigzag_pairs(int rank, int ranks);

}  // namespace sc
