// SC_CHECK for MPI. MPI's status is a plain int, so it is wrapped in a type of its own.
#pragma once

#include <mpi.h>

#include <string>

#include "common/base/check.h"

namespace sc {

/// Wraps what an MPI function returned: SC_CHECK(MpiStatus{MPI_Isend(...)}).
struct MpiStatus {
  int code;
};

template <>
struct StatusTraits<MpiStatus> {
  static bool ok(MpiStatus status) { return status.code == MPI_SUCCESS; }
  static std::string text(MpiStatus status) {
    char buffer[MPI_MAX_ERROR_STRING];
    int length = 0;
    MPI_Error_string(status.code, buffer, &length);
    return {buffer, static_cast<std::size_t>(length)};
  }
};

}  // namespace sc
