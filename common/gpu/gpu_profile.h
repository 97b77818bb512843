// GPU times by class of operation, for --profile. Does not include CUDA; a build without GPU code refuses.
#pragma once

#include <c10/core/ScalarType.h>

#include <memory>

#include "common/base/op_profile.h"
#include "common/records/profile.h"

namespace sc {

/// Encloses operations in CUDA events on the current stream. While it exists it is OpProfiler::current().
///   Cost  two events per operation; the times of neighbours overlap by one launch at most.
class GpuProfile : public OpProfiler {
 public:
  /// Between begin_step() and end_step(), which waits for the GPU, operations are timed, and so is the step
  /// on the current stream. Outside, begin() and end() do nothing.
  virtual void begin_step() = 0;
  virtual void end_step() = 0;
  /// The profile, to which the caller adds communication. This call measures bounds on this GPU, which
  /// nothing else should use: products in `dtype` on random numbers, some 20 ms for each shape. A bound stays
  /// unknown if there is no memory for its operands.
  [[nodiscard]] virtual Profile finish(c10::ScalarType dtype) = 0;
};

std::unique_ptr<GpuProfile> profile_gpu();

}  // namespace sc
