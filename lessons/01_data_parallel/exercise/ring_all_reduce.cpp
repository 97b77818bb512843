#include "lessons/01_data_parallel/exercise/ring_all_reduce.h"

#include "common/base/not_solved.h"

namespace sc {

/// Sums `t` over all ranks, in place, with messages between neighbours of a ring alone.
///   Shapes  t [n] fp32, contiguous; any n, also 0 or fewer than the ranks; the same on every rank.
///           scratch [slice_of(n, rank 0, N).size()] fp32: room for one slice that arrives.
///   Slices  slice j is elements slice_of(Elements(n), Rank{j}, comm.size()) of t (common/watch/comm_op.h);
///           some may be empty.
///   Ring    rank r sends to rank (r + 1) % N and receives from rank (r + N - 1) % N; nothing else.
///   Cost    at most 2 (N - 1) messages per rank; over all ranks 2 (N - 1) n elements, which is 2 (N - 1) / N
///           of t per rank if N divides n. One rank sends nothing.
///   Order   slice j = ((t_j + t_(j+1)) + t_(j+2)) + ..., ranks counted modulo N: bit for bit the same on
///           every rank.
///   After   every ticket has been waited for.
///   Source  Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations",
///           2009.
void ring_all_reduce(Communicator& comm, at::Tensor& t, at::Tensor& scratch) {
  // TODO: N - 1 rounds of "send a slice, add the one that arrives to mine", then N - 1 rounds of "send a
  // slice, keep the one that arrives". t.narrow(0, begin, size) is a slice, a.add_(b) adds in place.
  throw NotSolved();
}

}  // namespace sc
