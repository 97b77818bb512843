// Exercise of lesson 11; what is asked for stands in three_groups.cpp.
#pragma once

#include "common/comm/communicator.h"

namespace sc {

/// A rank of a mesh: rank = (stage x data + replica) x tensor + tensor rank.
struct MeshPlace {
  int stages = 1, data = 1, tensor = 1, rank = 0;
};

/// Ranks of one color make a group, ordered by their rank. -1: in none.
struct MeshColors {
  int tensor = -1, data = -1, ends = -1;
};

MeshColors colors_of(const MeshPlace& place);

/// Null where the color was -1. A group may have one rank.
struct MeshGroups {
  Communicator *tensor = nullptr, *data = nullptr, *ends = nullptr;
};

/// A gradient, of which each data rank steps a slice: the first data rank the first one, and so on.
struct SlicedGradient {
  at::Tensor full, slice;  // [n] and [n / data ranks], memory of their own; or both undefined
};

/// What a rank's backward has left.
struct StageGradients {
  SlicedGradient matrices;  // its part of its stage's matrices, which has met all tokens of its rows
  SlicedGradient norms;     // all norms of its stage, which have seen this tensor rank's tokens only
  SlicedGradient tied;  // its part of wte: the first stage's for the embedding, the last one's for the head
};

void sum_gradients(StageGradients& gradients, const MeshGroups& groups);

}  // namespace sc
