// main() of tests that run under mpirun, and the MPI that it offers them.
#pragma once

#include "common/comm/mpi/mpi_communicator.h"

namespace sc::test {

/// This process's MPI, and the group of all its ranks; both exist while tests run.
MpiWorld& mpi();
Communicator& mpi_world();
/// The scratch in bytes that MpiCommunicators of this process have asked for so far.
std::int64_t mpi_scratch_bytes();

}  // namespace sc::test
