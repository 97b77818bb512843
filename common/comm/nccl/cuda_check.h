// Lets SC_CHECK take the status of CUDA's runtime and of NCCL. Included in the cuda preset only.
#pragma once

#include <nccl.h>

#include <string>

#include "common/base/cuda_check.h"

namespace sc {

/// ncclInProgress is a success: the call of a non-blocking communicator was accepted, and is polled for.
template <>
struct StatusTraits<ncclResult_t> {
  static bool ok(ncclResult_t status) { return status == ncclSuccess || status == ncclInProgress; }
  static std::string text(ncclResult_t status) { return ncclGetErrorString(status); }
};

}  // namespace sc
