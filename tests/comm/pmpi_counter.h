// Counts what goes out over MPI, beneath everything of ours: link sc_pmpi_counter and the MPI functions of
// the program are these.
#pragma once

#include <cstdint>

namespace sc::test {

struct WireCount {
  std::int64_t messages = 0;     // Send and its kin
  std::int64_t bytes = 0;        // their payload
  std::int64_t largest = 0;      // of one of them
  std::int64_t collectives = 0;  // calls of MPI's own collectives that carry data: Stagecraft makes none
};

/// Of this process, since the last reset. Only between operations: a message counts when it is posted.
WireCount wire_count();
void reset_wire_count();

}  // namespace sc::test
