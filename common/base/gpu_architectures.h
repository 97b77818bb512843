// Which GPUs a list of CUDA architectures serves. Compiles without CUDA.
#pragma once

#include <string>
#include <string_view>

#include "common/base/check.h"

namespace sc {

struct Capability {
  int major = 0, minor = 0;
  [[nodiscard]] std::string text() const { return std::to_string(major) + "." + std::to_string(minor); }
};

/// The oldest GPU that runs our kernels, which need asynchronous copies to shared memory and bf16 arithmetic.
inline constexpr Capability kOldestGpu{8, 0};

/// Whether kernels compiled for `architectures` (CMAKE_CUDA_ARCHITECTURES, separated by spaces) run on such a
/// GPU.
///   80-real     machine code: runs on 8.0 and on later minor versions of major version 8
///   80-virtual  PTX, compiled by the driver when a program starts: runs on 8.0 and everything newer
///   80          both
///   90a         architecture-specific features: runs on 9.0 alone
bool architectures_serve(std::string_view architectures, Capability gpu);

/// The error that a run throws before its first kernel if architectures_serve() is false. `gpu` is the GPU's
/// name in the message, for example "GPU 0 (NVIDIA T4)".
InputError no_kernels_for(const std::string& gpu, Capability capability, std::string_view architectures);

}  // namespace sc
