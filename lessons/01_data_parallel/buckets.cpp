#include "buckets.h"

namespace sc {

// [anchor: buckets]
// Backward completes units from the last to the first, so the arena fills from its end: a bucket is a range
// of it, and may leave when the unit that holds its first element is complete.
std::vector<Bucket> make_buckets(const ParamLayout& layout, BucketSize size) {
  using By = BucketSize::By;
  std::vector<Bucket> buckets;
  std::int64_t end = layout.arena_size().value();  // everything from here on is in a bucket already
  if (size.by == By::model) return {{{0, end}, 0}};
  for (int unit = layout.last_unit(); unit >= 0; --unit) {
    const UnitLayout& u = layout.unit(unit);
    if (size.by == By::unit) {
      buckets.push_back({{u.sharded_begin, u.sharded_begin + u.sharded_size}, unit});
    } else if (size.by == By::tensor) {
      for (auto tensor = u.tensors.rbegin(); tensor != u.tensors.rend(); ++tensor) {
        const std::int64_t begin = u.sharded_begin + tensor->offset;
        buckets.push_back({{begin, begin + tensor->numel()}, unit});
      }
    } else {
      for (; end - size.elements >= u.sharded_begin; end -= size.elements)
        buckets.push_back({{end - size.elements, end}, unit});
      if (unit == 0 && end > 0) buckets.push_back({{0, end}, unit});
    }
  }
  return buckets;
}

int unit_of(const ParamLayout& layout, const Bucket& bucket) {
  const UnitLayout& first = layout.unit(bucket.ready_after);
  return bucket.range.end <= first.sharded_begin + first.sharded_size ? bucket.ready_after : kNoUnit;
}

}  // namespace sc
