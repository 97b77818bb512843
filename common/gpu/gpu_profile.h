// Times of operations on the GPU, by class: --profile. No CUDA in here; a build without GPU code refuses.
#pragma once

#include <c10/core/ScalarType.h>

#include <memory>

#include "common/base/op_profile.h"
#include "common/records/profile.h"

namespace sc {

/// Brackets operations with CUDA events on the current stream. While it lives it is OpProfiler::current().
///   Cost  two events an operation; the times of neighbours overlap by a launch at most.
class GpuProfile : public OpProfiler {
 public:
  /// Between them operations are timed, and the step itself, from one to the other on the current stream;
  /// outside begin() and end() do nothing. end_step waits for the GPU.
  virtual void begin_step() = 0;
  virtual void end_step() = 0;
  /// What was found; communication is the caller's to add. Bounds are measured now, on this GPU, which nobody
  /// else should use meanwhile: products in `dtype`, each for some 20 ms, on random numbers. Where no memory
  /// is free for one it is not known.
  [[nodiscard]] virtual Profile finish(c10::ScalarType dtype) = 0;
};

/// Of the current GPU.
std::unique_ptr<GpuProfile> profile_gpu();

}  // namespace sc
