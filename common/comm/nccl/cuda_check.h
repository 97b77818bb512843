// SC_CHECK for the status of the CUDA runtime and of NCCL. Included in the cuda preset only.
#pragma once

#include <nccl.h>

#include <string>

#include "common/base/cuda_check.h"

namespace sc {

/// ncclInProgress counts as success: the non-blocking communicator has accepted the call, and its end is
/// polled for.
template <>
struct StatusTraits<ncclResult_t> {
  static bool ok(ncclResult_t status) { return status == ncclSuccess || status == ncclInProgress; }
  static std::string text(ncclResult_t status) { return ncclGetErrorString(status); }
};

}  // namespace sc
