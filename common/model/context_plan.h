// What a context rank's part of a batch is, and what its attention holds. No torch.
#pragma once

#include <vector>

#include "common/memory/plan.h"
#include "common/model/context_cut.h"

namespace sc {

/// The rank's place on the context axis.
inline ContextCut context_cut_of(const RunShape& shape, Parts parts = Parts::zigzag) {
  return {static_cast<int>(shape.at(Axis::context)), static_cast<int>(shape.mesh.size(Axis::context)), parts};
}

/// The batch of `shape` as the rank of `cut` has it: of each row its own tokens, chunk after chunk.
///   Errors  InputError (exit 64): chunks do not divide a row.
RunShape shape_of_part(RunShape shape, const ContextCut& cut);
/// Elements of the keys and values of all context ranks, of a rank's heads; `shape` has the whole batch.
Formula keys_of(const RunShape& shape, std::int64_t heads);
/// What HopAttention takes, of a rank of `cut`.
void plan_hops(const RunShape& shape, const ContextCut& cut, std::int64_t heads, MemoryPlan& plan);

}  // namespace sc
