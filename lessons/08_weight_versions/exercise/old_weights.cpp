#include "lessons/08_weight_versions/exercise/old_weights.h"

#include "common/base/not_solved.h"

namespace sc {

// S stages, an update every n micro-batches; quotients are rounded down.
//   Forward   of micro-batch k reads
//               stash          the newest version of this stage
//               vertical_sync  max(0, k - (S - 1)) / n, which is what stage 0 has then
//               two_buffers    max(0, k / n - 1)
//   Backward  reads what its micro-batch's forward has read.
//   Memory    so many buffers are held at most:
//               stash          1 + ceil((S - 1 - s) / n) on stage s
//               vertical_sync  1 + ceil((S - 1) / n)
//               two_buffers    2

int OldWeights::forward(int microbatch) {
  // TODO: choose the version and note it in read_; held_ says where it is.
  throw NotSolved();
}

int OldWeights::backward(int microbatch) {
  // TODO
  throw NotSolved();
}

/// Gives back the versions that no later computation reads, and makes the next one: in place, if nobody needs
/// the newest one any more.
void OldWeights::update() {
  // TODO: which versions do micro-batches on their way need, and which does the next forward?
  throw NotSolved();
}

}  // namespace sc
