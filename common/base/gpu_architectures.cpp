#include "common/base/gpu_architectures.h"

#include <charconv>
#include <sstream>

namespace sc {
namespace {

bool serves(std::string_view architecture, Capability gpu) {
  int number = 0;
  const char* end = architecture.data() + architecture.size();
  const char* after = std::from_chars(architecture.data(), end, number).ptr;
  const std::string_view kind(after, static_cast<std::size_t>(end - after));
  const int major = number / 10, minor = number % 10;
  if (!kind.empty() && kind.front() != '-') return gpu.major == major && gpu.minor == minor;
  if (kind != "-virtual" && gpu.major == major && gpu.minor >= minor) return true;
  return kind != "-real" && (gpu.major > major || (gpu.major == major && gpu.minor >= minor));
}

}  // namespace

bool architectures_serve(std::string_view architectures, Capability gpu) {
  std::istringstream words{std::string(architectures)};
  for (std::string word; words >> word;)
    if (serves(word, gpu)) return true;
  return false;
}

InputError no_kernels_for(const std::string& gpu, Capability capability, std::string_view architectures) {
  const std::string where = gpu + ", compute capability " + capability.text(), oldest = kOldestGpu.text();
  if (capability.major < kOldestGpu.major)
    return {ExitCode::missing, where, "the kernels need " + oldest + " or newer",
            "a newer GPU, or run.sh --preset cpu"};
  return {ExitCode::missing, where,
          "this build has kernels for the CUDA architectures " + std::string(architectures) + " alone",
          "rm -r build/cuda, then start again: without CMAKE_CUDA_ARCHITECTURES the build serves " + oldest +
              " and newer"};
}

}  // namespace sc
