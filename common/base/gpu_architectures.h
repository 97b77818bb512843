// Which GPUs a list of CUDA architectures serves. No CUDA in here.
#pragma once

#include <string>
#include <string_view>

#include "common/base/check.h"

namespace sc {

/// What CUDA calls a GPU's compute capability: 8.6, 9.0.
struct Capability {
  int major = 0, minor = 0;
  [[nodiscard]] std::string text() const { return std::to_string(major) + "." + std::to_string(minor); }
};

/// The oldest that our kernels are written for: asynchronous copies to shared memory, arithmetic in bf16.
inline constexpr Capability kOldestGpu{8, 0};

/// Whether kernels compiled for `architectures`, as in CMAKE_CUDA_ARCHITECTURES with spaces, run on such a
/// GPU.
///   80-real     machine code: for 8.0 and later minor numbers of the same major one
///   80-virtual  PTX, which the driver compiles when a program starts: for 8.0 and all that is newer
///   80          both
///   90a         its features are that GPU's alone: for 9.0
bool architectures_serve(std::string_view architectures, Capability gpu);

/// What a run says before its first kernel where they do not.  gpu: "GPU 0 (NVIDIA T4)".
InputError no_kernels_for(const std::string& gpu, Capability capability, std::string_view architectures);

}  // namespace sc
