#include "zero3_buffers.h"

#include <algorithm>
#include <string>

namespace sc {

Sharing::Sharing(const RunShape& shape, const Zero3Options& options) {
  const std::int64_t world = to_int(shape.mesh.world()),
                     ranks = options.shard_ranks == 0 ? world : options.shard_ranks;
  if (world % ranks != 0) {
    std::string fit;
    for (std::int64_t k = 1; k <= world; ++k)
      if (world % k == 0) fit += (fit.empty() ? "" : k == world ? " or " : ", ") + std::to_string(k);
    refuse_setting("shard_ranks",
                   std::to_string(world) + " ranks cannot be divided into groups of " + std::to_string(ranks),
                   "--set shard_ranks=" + fit);
  }
  shards = static_cast<int>(ranks);
  replicas = static_cast<int>(world / ranks);
}

ParamLayout layout_of(const RunShape& shape, const Zero3Options& options) {
  return ParamLayout(shape.workload.model, WorldSize{Sharing(shape, options).shards}, options.persist_below);
}

int pool_of(const ParamLayout& layout, const Zero3Options& options) {
  if (!options.reshard_after_forward) return layout.num_blocks();
  return std::min<int>(layout.num_blocks(), static_cast<int>(options.prefetch) + 1);
}

}  // namespace sc
