// Lesson 04's setting `shard_ranks`, hybrid sharding: neighbours share each vector out, and the groups that
// they form are replicas of one another. Without it all ranks are one group, and nothing here does anything.
#include <utility>

#include "zero3.h"

namespace sc {

// [anchor: sum-over-replicas]
// A group has summed its own rows. Once per step, when the sum in a buffer is complete and in its slices,
// these meet those of the other groups: that is all that groups send each other.
void Zero3::sum_replicas(std::size_t buffer) {
  const int unit = std::exchange(complete_[buffer], kNoUnit);
  if (!replicas_ || unit == kNoUnit) return;
  for (OwnedSlice& s : slices_of(unit))
    if (!s.empty()) summed_.push_back(replicas_->all_reduce(s.grads, {OpPurpose::gradients, unit}));
}

// Groups of ranks are replicas and end with the same gradients, so only the first group squares its slices:
// each element must count once.
void Zero3::add_squares() {
  for (Ticket& ticket : summed_) ticket.wait();
  summed_.clear();
  if (!replicas_ || replicas_->rank() == Rank{0}) add_sums_of_squares(grads_of(slices_), sums_);
}

}  // namespace sc
