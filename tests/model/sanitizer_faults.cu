// Kernels that are wrong on purpose, each in one way: tests/sanitize_gpu.sh must notice them before it
// believes that ours are right.
//   usage  sanitizer_faults race     neighbours exchange values in shared memory without a barrier between
//          sanitizer_faults bounds   one element beyond its array
#include <cstdio>
#include <string_view>

#include "common/base/cuda_check.h"

namespace sc::fused {
namespace {

constexpr int kThreads = 256;

__global__ void race_kernel(int* out) {
  __shared__ int shared[kThreads];
  shared[threadIdx.x] = static_cast<int>(threadIdx.x);
  out[threadIdx.x] = shared[kThreads - 1 - threadIdx.x];
}

__global__ void bounds_kernel(int* out) { out[threadIdx.x + 1] = 1; }

void run(bool race) {
  int* out = nullptr;
  SC_CHECK(cudaMalloc(&out, sizeof(int) * kThreads));
  race ? race_kernel<<<1, kThreads>>>(out) : bounds_kernel<<<1, kThreads>>>(out);
  SC_CHECK(cudaGetLastError());
  SC_CHECK(cudaDeviceSynchronize());
  SC_CHECK(cudaFree(out));
}

}  // namespace
}  // namespace sc::fused

int main(int argc, char** argv) {
  const std::string_view fault = argc == 2 ? argv[1] : "";
  if (fault != "race" && fault != "bounds") {
    std::fputs("usage: sanitizer_faults race|bounds\n", stderr);
    return 64;
  }
  sc::fused::run(fault == "race");
  return 0;
}
