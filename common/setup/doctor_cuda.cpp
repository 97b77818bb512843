#include "common/base/gpu_architectures.h"
#include "common/comm/nccl/cuda_check.h"
#include "common/setup/doctor_lines.h"

namespace sc {
namespace {

std::string cuda_version(int code) {
  return std::to_string(code / 1000) + "." + std::to_string(code % 1000 / 10);
}

std::string nccl_version(int code) {
  return std::to_string(code / 10000) + "." + std::to_string(code / 100 % 100) + "." +
         std::to_string(code % 100);
}

DoctorLine device_line(int device) {
  cudaDeviceProp properties{};
  SC_CHECK(cudaGetDeviceProperties(&properties, device));
  const std::string name = "GPU " + std::to_string(device);
  const Capability capability{properties.major, properties.minor};
  const std::string value = std::string(properties.name) + ", " +
                            std::to_string(properties.totalGlobalMem / (std::size_t{1} << 30)) +
                            " GiB, compute capability " + capability.text();
  if (architectures_serve(STAGECRAFT_GPU_ARCHITECTURES, capability)) return {name, value};
  const InputError refused = no_kernels_for(name, capability, STAGECRAFT_GPU_ARCHITECTURES);
  return {name, value + "; " + refused.message(), refused.fix()};
}

}  // namespace

std::vector<DoctorLine> gpu_lines() {
  int runtime = 0, driver = 0, devices = 0, nccl = 0;
  SC_CHECK(cudaRuntimeGetVersion(&runtime));
  SC_CHECK(cudaDriverGetVersion(&driver));  // 0 without a driver
  SC_CHECK(ncclGetVersion(&nccl));
  std::vector<DoctorLine> lines = {{"CUDA runtime", cuda_version(runtime)},
                                   {"CUDA of driver", driver == 0 ? "no driver" : cuda_version(driver)},
                                   {"kernels for", STAGECRAFT_GPU_ARCHITECTURES}};
  lines.push_back(
      {"NCCL", nccl_version(nccl) + ", header " + nccl_version(NCCL_VERSION_CODE),
       nccl == NCCL_VERSION_CODE ? "" : "another NCCL is loaded first: leave it off LD_LIBRARY_PATH"});
  const cudaError_t status = cudaGetDeviceCount(&devices);
  if (status != cudaSuccess || devices == 0) {
    lines.push_back({"GPU", "none (" + StatusTraits<cudaError_t>::text(status) + ")"});
    return lines;
  }
  for (int device = 0; device < devices; ++device) lines.push_back(device_line(device));
  return lines;
}

}  // namespace sc
