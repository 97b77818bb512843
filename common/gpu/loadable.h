// Whether the driver accepts this build's kernels.
#pragma once

#include <cuda_runtime_api.h>

namespace sc {

/// Loads an empty kernel on the current device, as machine code or as PTX that the driver compiles, without
/// running it. Returns CUDA's error if the build has neither, or if the driver cannot compile it.
///   of_kernel  its ptxVersion says what the kernel was compiled from, e.g. 80 for the PTX of 8.0
cudaError_t load_a_kernel(cudaFuncAttributes& of_kernel);

}  // namespace sc
