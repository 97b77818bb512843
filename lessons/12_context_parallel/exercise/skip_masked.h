// Exercise of lesson 12; what is asked for stands in skip_masked.cpp.
#pragma once

#include "common/model/context_cut.h"

namespace sc {

/// Computes scores of a chunk of queries with a chunk of keys, m tokens each, and merges their softmax into
/// what the queries have met before. Counts the scores.
class ChunkAttention {
 public:
  virtual ~ChunkAttention() = default;
  virtual void masked(int query, int key) = 0;    // m^2, and throws away those of keys later in the row
  virtual void whole(int query, int key) = 0;     // m^2: each query sees each key
  virtual void diagonal(int query, int key) = 0;  // m (m + 1) / 2: query i sees keys 0 to i of their chunks
};

void attend(const ContextCut& cut, ChunkAttention& attention);

}  // namespace sc
