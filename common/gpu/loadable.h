// Whether the driver accepts this build's kernels.
#pragma once

#include <cuda_runtime_api.h>

namespace sc {

/// Loads an empty kernel on the current device, without running it. Returns CUDA's error if this build has
/// neither machine code for the device nor PTX that the driver can compile.
///   of_kernel  its ptxVersion says what the kernel was compiled from, e.g. 80 for the PTX of 8.0
cudaError_t load_a_kernel(cudaFuncAttributes& of_kernel);

}  // namespace sc
