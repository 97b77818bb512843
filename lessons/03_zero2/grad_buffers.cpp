#include "grad_buffers.h"

#include <algorithm>

namespace sc {

std::size_t buffer_of_unit(const ParamLayout& layout, int unit) {
  if (unit == 0) return kUnit0;
  if (unit == layout.last_unit()) return kLastUnit;
  return unit % 2 == 0 ? kEvenBlocks : kOddBlocks;
}

BufferSizes buffer_sizes(const ParamLayout& layout, std::int64_t bucket) {
  const std::int64_t world = to_int(layout.world());
  BufferSizes sizes;
  for (int unit = 0; unit < layout.num_units(); ++unit) {
    std::int64_t& size = sizes.full[buffer_of_unit(layout, unit)];
    size = std::max(size, layout.unit(unit).sharded_size);
  }
  const bool packed = bucket > 0;
  if (packed) {
    for (const ShardBucket& b : make_shard_buckets(layout, bucket))
      sizes.full[kBucket] = std::max(sizes.full[kBucket], b.range.size() * world);
  }
  for (std::size_t buffer = 0; buffer < kBuffers; ++buffer) {
    if ((buffer == kBucket) == packed) sizes.scratch[buffer] = sizes.full[buffer] / world;
  }
  return sizes;
}

// Slices of all units lie one after another in a rank's arena, and are filled from its end.
// Borders lie at multiples of the alignment, so that a bucket of one rank is as long as any other's.
std::vector<ShardBucket> make_shard_buckets(const ParamLayout& layout, std::int64_t bucket) {
  const std::int64_t world = to_int(layout.world());
  const std::int64_t size = round_up(ceil_div(bucket, world), kAlign);
  std::vector<ShardBucket> buckets;
  std::int64_t end = layout.arena_size().value() / world;
  for (int unit = layout.last_unit(); unit >= 0; --unit) {
    const std::int64_t first = layout.unit(unit).sharded_begin / world;
    for (; end - size >= first; end -= size) buckets.push_back({{end - size, end}, unit});
    if (unit == 0 && end > 0) buckets.push_back({{0, end}, 0});
  }
  return buckets;
}

Range shared_range(const ParamLayout& layout, int unit, const ShardBucket& bucket) {
  const std::int64_t world = to_int(layout.world());
  const UnitLayout& u = layout.unit(unit);
  return {std::max(bucket.range.begin, u.sharded_begin / world),
          std::min(bucket.range.end, (u.sharded_begin + u.sharded_size) / world)};
}

// [anchor: bucket]
// A bucket that is not one unit is copied rank-major, every rank's part of it behind the other's, so that
// reduce-scatter hands each rank elements of its own slices: who owns what does not depend on the bucket.
void copy_rank_major(const ParamLayout& layout, int unit, const ShardBucket& bucket, const at::Tensor& full,
                     const at::Tensor& packed) {
  const std::int64_t world = to_int(layout.world()), begin = layout.unit(unit).sharded_begin / world;
  const Range shared = shared_range(layout, unit, bucket);
  const at::Tensor from = full.view({world, -1});
  packed.view({world, -1})
      .narrow(1, shared.begin - bucket.range.begin, shared.size())
      .copy_(from.narrow(1, shared.begin - begin, shared.size()));
}

}  // namespace sc
