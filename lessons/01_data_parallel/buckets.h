// How lesson 01 cuts its gradients into messages.
#pragma once

#include <vector>

#include "common/model/param_layout.h"
#include "common/watch/comm_op.h"

namespace sc {

/// How much gradient one all-reduce carries: tensor | unit | model | <elements>.
struct BucketSize {
  enum class By { tensor, unit, model, elements };
  By by = By::unit;
  std::int64_t elements = 0;
  bool operator==(const BucketSize&) const = default;
};

/// A range of the gradient arena that travels as one all-reduce, complete when backward is done with unit
/// `ready_after`.
struct Bucket {
  Range range;
  int ready_after;  // unit; backward completes them from the last to the first
};
/// The unit that a bucket lies in; kNoUnit: it has parts of several.
int unit_of(const ParamLayout& layout, const Bucket& bucket);
/// All buckets, in the order in which backward completes them.
std::vector<Bucket> make_buckets(const ParamLayout& layout, BucketSize size);

}  // namespace sc
