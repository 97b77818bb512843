#include "tests/comm/pmpi_counter.h"

#include <mpi.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <numeric>

namespace sc::test {
namespace {

std::atomic<std::int64_t> g_messages = 0, g_bytes = 0, g_largest = 0, g_collectives = 0;

std::mutex g_mutex;
std::map<MPI_Comm, SentOver> g_over;  // those of MPI's: none is freed while tests run

std::vector<int> ranks_of(MPI_Comm comm) {
  MPI_Group group = MPI_GROUP_NULL, world = MPI_GROUP_NULL;
  PMPI_Comm_group(comm, &group);
  PMPI_Comm_group(MPI_COMM_WORLD, &world);
  int size = 0;
  PMPI_Group_size(group, &size);
  std::vector<int> members(static_cast<std::size_t>(size)), ranks(members.size());
  std::iota(members.begin(), members.end(), 0);
  PMPI_Group_translate_ranks(group, size, members.data(), world, ranks.data());
  PMPI_Group_free(&group);
  PMPI_Group_free(&world);
  return ranks;
}

void count_message(int count, MPI_Datatype type, MPI_Comm comm) {
  int size = 0;
  PMPI_Type_size(type, &size);
  ++g_messages;
  const std::int64_t bytes = static_cast<std::int64_t>(count) * size;
  g_bytes += bytes;
  std::int64_t largest = g_largest;
  while (largest < bytes && !g_largest.compare_exchange_weak(largest, bytes)) {
  }
  const std::lock_guard lock(g_mutex);
  SentOver& over = g_over[comm];
  if (over.ranks.empty()) over.ranks = ranks_of(comm);
  over.bytes += bytes;
}

}  // namespace

WireCount wire_count() { return {g_messages, g_bytes, g_largest, g_collectives}; }

std::vector<SentOver> wire_count_by_communicator() {
  const std::lock_guard lock(g_mutex);
  std::vector<SentOver> all;
  for (const auto& [comm, over] : g_over)
    if (over.bytes > 0) all.push_back(over);
  std::ranges::sort(all);
  return all;
}

void reset_wire_count() {
  g_messages = g_bytes = g_largest = g_collectives = 0;
  const std::lock_guard lock(g_mutex);
  g_over.clear();
}

}  // namespace sc::test

using sc::test::count_message;
using sc::test::g_collectives;

// MPI's profiling interface: a program's own MPI_X is called first, and PMPI_X is the library's.
extern "C" {

int MPI_Send(const void* data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm) {
  count_message(count, type, comm);
  return PMPI_Send(data, count, type, to, tag, comm);
}

int MPI_Ssend(const void* data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm) {
  count_message(count, type, comm);
  return PMPI_Ssend(data, count, type, to, tag, comm);
}

int MPI_Isend(const void* data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
              MPI_Request* request) {
  count_message(count, type, comm);
  return PMPI_Isend(data, count, type, to, tag, comm, request);
}

int MPI_Issend(const void* data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
               MPI_Request* request) {
  count_message(count, type, comm);
  return PMPI_Issend(data, count, type, to, tag, comm, request);
}

int MPI_Sendrecv(const void* out, int out_count, MPI_Datatype out_type, int to, int out_tag, void* in,
                 int in_count, MPI_Datatype in_type, int from, int in_tag, MPI_Comm comm,
                 MPI_Status* status) {
  count_message(out_count, out_type, comm);
  return PMPI_Sendrecv(out, out_count, out_type, to, out_tag, in, in_count, in_type, from, in_tag, comm,
                       status);
}

int MPI_Bcast(void* data, int count, MPI_Datatype type, int root, MPI_Comm comm) {
  ++g_collectives;
  return PMPI_Bcast(data, count, type, root, comm);
}

int MPI_Allreduce(const void* in, void* out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  ++g_collectives;
  return PMPI_Allreduce(in, out, count, type, op, comm);
}

int MPI_Reduce_scatter_block(const void* in, void* out, int count, MPI_Datatype type, MPI_Op op,
                             MPI_Comm comm) {
  ++g_collectives;
  return PMPI_Reduce_scatter_block(in, out, count, type, op, comm);
}

int MPI_Allgather(const void* in, int in_count, MPI_Datatype in_type, void* out, int out_count,
                  MPI_Datatype out_type, MPI_Comm comm) {
  ++g_collectives;
  return PMPI_Allgather(in, in_count, in_type, out, out_count, out_type, comm);
}

int MPI_Ibcast(void* data, int count, MPI_Datatype type, int root, MPI_Comm comm, MPI_Request* request) {
  ++g_collectives;
  return PMPI_Ibcast(data, count, type, root, comm, request);
}

int MPI_Iallreduce(const void* in, void* out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                   MPI_Request* request) {
  ++g_collectives;
  return PMPI_Iallreduce(in, out, count, type, op, comm, request);
}

int MPI_Iallgather(const void* in, int in_count, MPI_Datatype in_type, void* out, int out_count,
                   MPI_Datatype out_type, MPI_Comm comm, MPI_Request* request) {
  ++g_collectives;
  return PMPI_Iallgather(in, in_count, in_type, out, out_count, out_type, comm, request);
}

}  // extern "C"
