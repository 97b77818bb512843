// Time of all_reduce, reduce_scatter and all_gather over MPI: mpirun -n 2 --bind-to none comm_bench. Not a
// test.
#include <ATen/ops/full.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <vector>

#include "common/comm/mpi_communicator.h"

namespace sc {
namespace {

/// Median and fastest of 30 runs after 5 to warm up, in milliseconds, as rank 0 sees it from issue to the end
/// of the wait.
void measure(Communicator& comm, const char* name, std::int64_t bytes, const std::function<Ticket()>& issue) {
  std::vector<double> times;
  for (int k = -5; k < 30; ++k) {
    comm.barrier();
    const auto start = std::chrono::steady_clock::now();
    issue().wait();
    const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - start;
    if (k >= 0) times.push_back(time.count());
  }
  std::sort(times.begin(), times.end());
  if (comm.rank() != Rank{0}) return;
  std::printf("%-16s %10lld bytes  %8.3f ms median  %8.3f ms fastest\n", name, static_cast<long long>(bytes),
              times[times.size() / 2], times[0]);
}

void run() {
  MpiWorld mpi([](Bytes bytes) { return at::full({bytes.value()}, 0, at::kByte); });
  const auto comm = mpi.world();
  const std::int64_t world = to_int(comm->size());
  for (const std::int64_t bytes : {4LL << 10, 256LL << 10, 4LL << 20, 64LL << 20}) {
    const std::int64_t shard_elements = bytes / 4 / world;
    at::Tensor full = at::full({shard_elements * world}, 1.0, at::kFloat),
               shard = at::full({shard_elements}, 1.0, at::kFloat);
    measure(*comm, "all_reduce", bytes, [&] { return comm->all_reduce(full); });
    full.fill_(1.0);
    measure(*comm, "reduce_scatter", bytes, [&] { return comm->reduce_scatter(full, shard); });
    measure(*comm, "all_gather", bytes, [&] { return comm->all_gather(shard, full); });
    measure(*comm, "broadcast", bytes, [&] { return comm->broadcast(full, Rank{0}); });
  }
}

}  // namespace
}  // namespace sc

int main() {
  sc::run();
  return 0;
}
