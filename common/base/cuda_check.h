// SC_CHECK for the CUDA runtime's status.
#pragma once

#include <cuda_runtime_api.h>

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

}  // namespace sc
