#include "shard_buckets.h"

#include <algorithm>

namespace sc {

// Slices of all units lie one after another in a rank's arena, and are filled from its end. Borders lie at
// multiples of the alignment, so that a bucket is equally long on all ranks.
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

int unit_of(const ParamLayout& layout, const ShardBucket& bucket) {
  const UnitLayout& first = layout.unit(bucket.ready_after);
  const std::int64_t end = (first.sharded_begin + first.sharded_size) / to_int(layout.world());
  return bucket.range.end <= end ? bucket.ready_after : kNoUnit;
}

Elements largest_of(const std::vector<ShardBucket>& buckets, WorldSize world) {
  std::int64_t largest = 0;
  for (const ShardBucket& b : buckets) largest = std::max(largest, b.range.size());
  return Elements(largest * to_int(world));
}

}  // namespace sc
