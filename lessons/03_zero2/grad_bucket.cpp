#include "grad_bucket.h"

#include <algorithm>

namespace sc {

namespace {

// The elements that a unit's slices and a bucket share, relative to the arena; none (size() <= 0) if they do
// not meet.
Range shared_range(const ParamLayout& layout, int unit, const ShardBucket& bucket) {
  const std::int64_t world = to_int(layout.world());
  const UnitLayout& u = layout.unit(unit);
  return {std::max(bucket.range.begin, u.sharded_begin / world),
          std::min(bucket.range.end, (u.sharded_begin + u.sharded_size) / world)};
}

// [anchor: bucket]
// A bucket that is not one unit is copied rank-major, one rank's part after the other's, so that
// reduce-scatter gives each rank elements of its own slices: which rank owns what does not depend on the
// bucket.
//   Shapes  full [the unit's sharded_size], packed [world * bucket.range.size()]
void copy_rank_major(const ParamLayout& layout, int unit, const ShardBucket& bucket, const at::Tensor& full,
                     const at::Tensor& packed) {
  const std::int64_t world = to_int(layout.world()), begin = layout.unit(unit).sharded_begin / world;
  const Range shared = shared_range(layout, unit, bucket);
  const at::Tensor from = full.view({world, -1});
  packed.view({world, -1})
      .narrow(1, shared.begin - bucket.range.begin, shared.size())
      .copy_(from.narrow(1, shared.begin - begin, shared.size()));
}

}  // namespace

GradBucket::GradBucket(const RunContext& context, const ParamLayout& layout, std::int64_t bucket,
                       at::Tensor shard, PlannedBuffers& buffers)
    : context_(context),
      layout_(layout),
      buckets_(make_shard_buckets(layout, bucket)),
      shard_(std::move(shard)),
      packed_(buffers.zeros("grads_bucket")),
      scratch_(buffers.zeros("grads_scratch")) {}

void GradBucket::add(int unit, const at::Tensor& full, Write write) {
  for (const ShardBucket& b : buckets_) {
    if (shared_range(layout_, unit, b).size() <= 0) continue;
    wait();  // the one before leaves the buffer
    const at::Tensor packed = packed_.narrow(0, 0, to_int(layout_.world()) * b.range.size());
    copy_rank_major(layout_, unit, b, full, packed);
    if (b.ready_after != unit) continue;
    const at::Tensor slice = shard_.narrow(0, b.range.begin, b.range.size());
    pending_.ticket = context_.comm.reduce_scatter(packed, pending_.lands_in(slice, scratch_, write),
                                                   {OpPurpose::gradients, unit_of(layout_, b)});
  }
}

}  // namespace sc
