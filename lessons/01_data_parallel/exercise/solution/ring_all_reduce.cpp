#include "lessons/01_data_parallel/exercise/ring_all_reduce.h"

namespace sc {
namespace {

/// Rank r's view of the ring and of the tensor's slices, all numbers modulo N.
struct Ring {
  Communicator& comm;
  at::Tensor& t;
  const std::int64_t n = to_int(comm.size()), me = to_int(comm.rank());

  [[nodiscard]] at::Tensor slice(std::int64_t j) const {
    const Slice s = slice_of(Elements(t.numel()), rank(j), comm.size());
    return t.narrow(0, s.begin, s.size());
  }
  [[nodiscard]] Rank rank(std::int64_t r) const { return Rank{static_cast<int>((r % n + n) % n)}; }

  /// Sends slice `out` to the right while slice `in` comes from the left.
  void pass(std::int64_t out, at::Tensor arrives) const {
    Ticket received = comm.recv(arrives, rank(me - 1));
    Ticket sent = comm.send(slice(out), rank(me + 1));
    received.wait();
    sent.wait();
  }
};

}  // namespace

void ring_all_reduce(Communicator& comm, at::Tensor& t, at::Tensor& scratch) {
  const Ring ring{comm, t};
  // Reduce-scatter: slice j starts at rank j and walks right; each rank adds its own part. It is complete at
  // rank j + N - 1.
  for (std::int64_t step = 0; step < ring.n - 1; ++step) {
    at::Tensor mine = ring.slice(ring.me - step - 1);
    const at::Tensor arrives = scratch.narrow(0, 0, mine.numel());
    ring.pass(ring.me - step, arrives);
    mine.add_(arrives);
  }
  // All-gather: the complete slices walk right once more.
  for (std::int64_t step = 0; step < ring.n - 1; ++step)
    ring.pass(ring.me + 1 - step, ring.slice(ring.me - step));
}

}  // namespace sc
