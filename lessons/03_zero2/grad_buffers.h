// Where the gradients of lesson 03 lie while they are full, and what of them travels as one message.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <vector>

#include "common/model/param_layout.h"

namespace sc {

/// Full gradients: unit 0, which the tied head opens and only the embedding completes; two blocks, the one
/// that is computed and the one that travels; the last unit. Each is a buffer, and so is the bucket.
enum GradBuffer : std::size_t { kUnit0, kEvenBlocks, kOddBlocks, kLastUnit, kBucket, kBuffers };
constexpr std::array<const char*, kBuffers> kBufferNames = {"grads_full, unit 0", "grads_full, even blocks",
                                                            "grads_full, odd blocks", "grads_full, last unit",
                                                            "grads_bucket"};
std::size_t buffer_of_unit(const ParamLayout& layout, int unit);

/// Elements of each buffer, and of the scratch beside the slice in which the sums of later micro-batches land:
/// this rank's part of what travels out of the buffer at once.
struct BufferSizes {
  std::array<std::int64_t, kBuffers> full{}, scratch{};
};
/// bucket: full elements that travel as one message; 0: a unit as it lies, and the bucket has no element.
BufferSizes buffer_sizes(const ParamLayout& layout, std::int64_t bucket);

/// Elements of every rank's slice arena that travel as one reduce-scatter: `range`, relative to the arena;
/// complete once backward is done with `ready_after`.
struct ShardBucket {
  Range range;
  int ready_after;
};
/// From the arena's end, the order in which they are filled.  bucket: full elements, at least one slice alignment a
/// rank.
std::vector<ShardBucket> make_shard_buckets(const ParamLayout& layout, std::int64_t bucket);

/// What a unit's slices and a bucket have in common, relative to the arena; no element (size() <= 0) where
/// they do not meet.
Range shared_range(const ParamLayout& layout, int unit, const ShardBucket& bucket);

/// Copies that range of all ranks' slices out of the unit's full gradient to its place in the bucket.
///   Shapes  full [the unit's sharded_size], packed [world * bucket.range.size()]; the range is not empty.
void copy_rank_major(const ParamLayout& layout, int unit, const ShardBucket& bucket, const at::Tensor& full,
                     const at::Tensor& packed);

}  // namespace sc
