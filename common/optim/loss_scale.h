// Dynamic loss scaling for fp16 gradients, in one rule for the CPU and for nvcc. No torch.
//   Source  Micikevicius et al., arXiv:1710.03740; hysteresis as in Megatron-LM's grad scaler.
#pragma once

#include <cstdint>

#include "common/base/host_device.h"

namespace sc {

/// The factor of the loss before backward: small gradients would vanish in fp16. The update divides by it.
struct LossScale {
  static constexpr float kStart = 65536.0F, kLowest = 1.0F;
  static constexpr std::int64_t kGoodSteps = 1000;  // good steps in a row that double the scale
  static constexpr std::int64_t kHysteresis = 2;    // overflows since the last change that halve the scale

  float scale = kStart;
  std::int64_t good = 0, overflows = 0;

  /// Adapts the scale after a step; `finite` says whether all of its gradients were.
  SC_HOST_DEVICE void update(bool finite) {
    if (finite) {
      if (++good < kGoodSteps) return;
      scale *= 2;
    } else {
      good = 0;
      if (++overflows < kHysteresis) return;
      scale = scale / 2 < kLowest ? kLowest : scale / 2;
    }
    good = overflows = 0;
  }
};

}  // namespace sc
