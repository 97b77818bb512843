// Lesson 03's setting `bucket`: gradients travel in messages of a given size instead of one per unit.
#pragma once

#include <vector>

#include "common/strategy/owned_slice.h"
#include "shard_buckets.h"

namespace sc {

/// One buffer, in which one bucket after the other is filled and travels.
class GradBucket {
 public:
  /// `shard` has this rank's slices of all units, one after another.
  GradBucket(const RunContext& context, const ParamLayout& layout, std::int64_t bucket, at::Tensor shard,
             PlannedBuffers& buffers);
  /// Copies the unit's part into every bucket that has one; a bucket leaves when the last unit's part is in
  /// it. `full` is free afterwards.
  void add(int unit, const at::Tensor& full, Write write);
  /// Waits until the bucket that left last has arrived.
  void wait() { pending_.wait(); }

 private:
  RunContext context_;
  ParamLayout layout_;
  std::vector<ShardBucket> buckets_;
  at::Tensor shard_, packed_, scratch_;  // scratch_ undefined where no later micro-batch is added
  PendingSum pending_;
};

}  // namespace sc
