// How lesson 04 cuts the model into slices, and how many buffers its blocks take turns in. No torch.
#pragma once

#include "zero3_plan.h"

namespace sc {

/// `shards` ranks share each vector out, one slice each, and are one of `replicas` groups with the same
/// vectors.
///   Errors  InputError (exit 64) if the ranks cannot be divided into groups of shard_ranks.
struct Sharing {
  Sharing(const RunShape& shape, const Zero3Options& options);
  int shards, replicas;
};
ParamLayout layout_of(const RunShape& shape, const Zero3Options& options);

/// The number of buffers in which blocks' parameters take turns: one for the block that computes, one for
/// each on its way.
int pool_of(const ParamLayout& layout, const Zero3Options& options);

}  // namespace sc
