// Lets SC_CHECK take the status of CUDA's runtime and of NCCL. Included in the cuda preset only.
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <string>

#include "common/base/check.h"

namespace sc {

template <>
struct StatusTraits<cudaError_t> {
  static bool ok(cudaError_t status) { return status == cudaSuccess; }
  static std::string text(cudaError_t status) {
    return std::string(cudaGetErrorName(status)) + ": " + cudaGetErrorString(status);
  }
};

/// ncclInProgress is a success: the call of a non-blocking communicator was accepted, and is polled for.
template <>
struct StatusTraits<ncclResult_t> {
  static bool ok(ncclResult_t status) { return status == ncclSuccess || status == ncclInProgress; }
  static std::string text(ncclResult_t status) { return ncclGetErrorString(status); }
};

}  // namespace sc
