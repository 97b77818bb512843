// Counts what goes out over MPI, below all of our code: a program that links sc_pmpi_counter calls these MPI
// functions.
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

namespace sc::test {

struct WireCount {
  std::int64_t messages = 0;     // Send and its kin
  std::int64_t bytes = 0;        // their payload
  std::int64_t largest = 0;      // of one of them
  std::int64_t collectives = 0;  // calls of MPI's own collectives that carry data: Stagecraft makes none
};

/// The bytes that were sent over one of MPI's communicators.
struct SentOver {
  std::vector<int> ranks;  // its members, as MPI_COMM_WORLD numbers them
  std::int64_t bytes = 0;
  auto operator<=>(const SentOver&) const = default;
};

/// The count of this process since the last reset. Must be called between operations, since a message counts
/// when it is posted.
WireCount wire_count();
/// The count by communicator, in ascending order of bytes; communicators without bytes are left out.
std::vector<SentOver> wire_count_by_communicator();
void reset_wire_count();

}  // namespace sc::test
