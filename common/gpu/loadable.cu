#include "common/gpu/loadable.h"

namespace sc {
namespace {

__global__ void nothing() {}

}  // namespace

cudaError_t load_a_kernel(cudaFuncAttributes& of_kernel) {
  return cudaFuncGetAttributes(&of_kernel, nothing);
}

}  // namespace sc
