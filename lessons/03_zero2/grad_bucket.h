// Lesson 03's setting `bucket`: gradients travel in messages of a given size instead of a unit each.
#pragma once

#include <vector>

#include "common/strategy/owned_slice.h"

namespace sc {

/// Elements of every rank's slice arena that travel as one reduce-scatter: `range`, relative to the arena;
/// complete once backward is done with `ready_after`.
struct ShardBucket {
  Range range;
  int ready_after;
};
/// From the arena's end, the order in which they are filled.  bucket: full elements, at least one slice alignment a
/// rank.
std::vector<ShardBucket> make_shard_buckets(const ParamLayout& layout, std::int64_t bucket);
/// Of all ranks' parts of the largest of them; 0 if there is none.
Elements largest_of(const std::vector<ShardBucket>& buckets, WorldSize world);

/// One buffer, in which bucket after bucket is filled and travels.
class GradBucket {
 public:
  /// shard: this rank's slices of all units, one after another. later_micro_batches: sums are added to it.
  GradBucket(const RunContext& context, const ParamLayout& layout, std::int64_t bucket, at::Tensor shard,
             bool later_micro_batches);
  /// The unit's part of every bucket that holds one; a bucket leaves when the last unit's part is in it.
  /// `full` is free afterwards.
  void add(int unit, const at::Tensor& full, Write write);
  /// What has left has arrived.
  void wait() { pending_.wait(); }

 private:
  RunContext context_;
  ParamLayout layout_;
  std::vector<ShardBucket> buckets_;
  at::Tensor shard_, packed_, scratch_;
  PendingSum pending_;
};

}  // namespace sc
