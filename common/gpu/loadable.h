// Whether the driver takes this build's kernels.
#pragma once

#include <cuda_runtime_api.h>

namespace sc {

/// Loads a kernel that does nothing on the current device: machine code, or PTX, which the driver compiles.
/// CUDA's error where there is neither, or the driver cannot compile it.  Runs nothing.
///   of_kernel  ptxVersion says what it was compiled from: 80 of the PTX of 8.0.
cudaError_t load_a_kernel(cudaFuncAttributes& of_kernel);

}  // namespace sc
