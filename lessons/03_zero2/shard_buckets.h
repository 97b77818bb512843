// How lesson 03's gradients are cut if a message is not a unit. No torch.
#pragma once

#include <vector>

#include "common/model/param_layout.h"
#include "common/watch/comm_op.h"

namespace sc {

/// The elements `range` of every rank's slice arena, which travel as one reduce-scatter; complete when
/// backward is done with unit `ready_after`.
struct ShardBucket {
  Range range;
  int ready_after;
};
/// All buckets from the arena's end on, the order in which they are filled. `bucket` counts full elements, at
/// least one slice alignment per rank.
std::vector<ShardBucket> make_shard_buckets(const ParamLayout& layout, std::int64_t bucket);
/// The unit that a bucket lies in; kNoUnit: it has parts of several.
int unit_of(const ParamLayout& layout, const ShardBucket& bucket);
/// The size of the largest bucket, with all ranks' parts; 0 if there is none.
Elements largest_of(const std::vector<ShardBucket>& buckets, WorldSize world);

}  // namespace sc
