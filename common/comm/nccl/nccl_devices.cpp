#include "common/comm/nccl/nccl_devices.h"

#include <cstdlib>

#include "common/comm/nccl/cuda_check.h"

namespace sc {
namespace {

std::string version_text(int code) {
  return std::to_string(code / 10000) + "." + std::to_string(code / 100 % 100) + "." +
         std::to_string(code % 100);
}

}  // namespace

int visible_gpus() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaSuccess && count > 0) return count;
  (void)cudaGetLastError();
  throw InputError(
      ExitCode::missing, "--device cuda",
      "no GPU found" + (status == cudaSuccess ? "" : " (" + StatusTraits<cudaError_t>::text(status) + ")"),
      "--device cpu, or see common/setup/doctor.sh");
}

void set_nccl_environment() {
  ::setenv("NCCL_NVLS_ENABLE", "0", /*overwrite=*/0);
  ::setenv("NCCL_GRAPH_REGISTER", "0", /*overwrite=*/0);
  ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", /*overwrite=*/0);
}

bool nccl_may_use_copy_engines() {
  constexpr int kDriverThatCan = 12050, kDriverThatRefuses = 13010, kNcclThatNeedsItNot = 22902;
  int driver = 0, nccl = 0;
  SC_CHECK(cudaDriverGetVersion(&driver));
  SC_CHECK(ncclGetVersion(&nccl));
  return driver >= kDriverThatCan && (driver < kDriverThatRefuses || nccl >= kNcclThatNeedsItNot);
}

std::string describe_nccl() {
  int loaded = 0;
  SC_CHECK(ncclGetVersion(&loaded));
  return "NCCL " + version_text(loaded) + " (header " + version_text(NCCL_VERSION_CODE) + ")";
}

}  // namespace sc
