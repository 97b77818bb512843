#include "lessons/01_data_parallel/exercise/overlap.h"

#include <vector>

namespace sc {

/// Runs this rank's backward and, while it runs, sums its gradients over all ranks, in place.
///   buckets  ranges of backward.grads(), from its end to its beginning; together they are all of it.
///            A bucket may hold parts of several units, and a unit parts of several buckets.
///   Cost     one all-reduce per bucket, in the order of `buckets`.
///   Overlap  a bucket is issued as soon as compute() has written all of it: before the next unit is
///            computed. Nobody waits before the last unit has been computed.
///   After    every ticket has been waited for.
void backward_and_reduce(Backward& backward, std::span<const Range> buckets, Communicator& comm) {
  for (int unit = backward.last_unit(); unit >= 0; --unit) backward.compute(unit);
  // TODO: this is right, and the network rests while backward computes. Issue each bucket during backward
  // instead.
  std::vector<Ticket> tickets;
  for (const Range& bucket : buckets) {
    at::Tensor grads = backward.grads().narrow(0, bucket.begin, bucket.size());
    tickets.push_back(comm.all_reduce(grads));
  }
  for (Ticket& ticket : tickets) ticket.wait();
}

}  // namespace sc
