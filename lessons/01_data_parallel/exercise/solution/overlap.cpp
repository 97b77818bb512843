#include "lessons/01_data_parallel/exercise/overlap.h"

#include <vector>

namespace sc {

void backward_and_reduce(Backward& backward, std::span<const Range> buckets, Communicator& comm) {
  std::vector<Ticket> tickets;
  for (int unit = backward.last_unit(); unit >= 0; --unit) {
    backward.compute(unit);
    // The arena fills from its end, so everything from this unit's first element on is complete.
    const std::int64_t complete_from = backward.range(unit).begin;
    while (tickets.size() < buckets.size() && buckets[tickets.size()].begin >= complete_from) {
      const Range& bucket = buckets[tickets.size()];
      at::Tensor grads = backward.grads().narrow(0, bucket.begin, bucket.size());
      tickets.push_back(comm.all_reduce(grads));
    }
  }
  for (Ticket& ticket : tickets) ticket.wait();
}

}  // namespace sc
