// Where lesson 04's units are while they are whole. No torch.
#pragma once

#include "zero3_plan.h"

namespace sc {

/// Ranks that share a vector out, one slice each, and groups of them, which are copies of one another.
///   Errors  InputError (exit 64): they do not divide the ranks.
struct Sharing {
  Sharing(const RunShape& shape, const Zero3Options& options);
  int shards, replicas;
};
ParamLayout layout_of(const RunShape& shape, const Zero3Options& options);

/// Buffers that blocks' parameters take turns in: of the one that computes and those on their way.
int pool_of(const ParamLayout& layout, const Zero3Options& options);

}  // namespace sc
