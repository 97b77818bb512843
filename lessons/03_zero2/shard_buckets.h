// How lesson 03's gradients are cut where a message is not a unit. No torch.
#pragma once

#include <vector>

#include "common/model/param_layout.h"
#include "common/watch/comm_op.h"

namespace sc {

/// Elements of every rank's slice arena that travel as one reduce-scatter: `range`, relative to the arena;
/// complete once backward is done with `ready_after`.
struct ShardBucket {
  Range range;
  int ready_after;
};
/// From the arena's end, the order in which they are filled.  bucket: full elements, at least one slice
///                                                            alignment a
/// rank.
std::vector<ShardBucket> make_shard_buckets(const ParamLayout& layout, std::int64_t bucket);
/// The unit that it lies in; kNoUnit: it has parts of several.
int unit_of(const ParamLayout& layout, const ShardBucket& bucket);
/// Of all ranks' parts of the largest of them; 0 if there is none.
Elements largest_of(const std::vector<ShardBucket>& buckets, WorldSize world);

}  // namespace sc
