// Where lesson 04's units are while they are whole. No torch.
#pragma once

#include <cstddef>
#include <vector>

#include "zero3_plan.h"

namespace sc {

/// Ranks that share a vector out, one slice each, and groups of them, which are copies of one another.
///   Errors  InputError (exit 64): they do not divide the ranks.
struct Sharing {
  Sharing(const RunShape& shape, const Zero3Options& options);
  int shards, replicas;
};
ParamLayout layout_of(const RunShape& shape, const Zero3Options& options);

/// Buffers of gathered parameters: unit 0's, which tied embedding and head share, the last unit's, and the
/// blocks' pool:
/// the one that computes and those on their way.
int pool_of(const ParamLayout& layout, const Zero3Options& options);
std::size_t params_buffer_of(const ParamLayout& layout, int pool, int unit);

/// Buffers of full gradients, as in lesson 03: unit 0, the last unit, two for the blocks.
constexpr std::size_t kZero3GradBuffers = 4;
std::size_t grads_buffer_of(const ParamLayout& layout, int unit);

/// Elements of the largest unit that uses each buffer.
std::vector<UnitLayout> sizes_of(const ParamLayout& layout, std::size_t buffers, int pool);

}  // namespace sc
