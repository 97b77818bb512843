// The rule by which a step's four sums decide its update, once for the CPU and for nvcc.
#pragma once

#include <cmath>
#include <cstdint>

#include "common/optim/adamw.h"
#include "common/optim/grad_norm.h"
#include "common/optim/loss_scale.h"

namespace sc {

/// The rule of global_norm_and_clip, with pointers to its inputs and outputs.
struct NormAndClip {
  const double* sums;  // [4], after their all-reduce
  float max_norm;
  float *norm, *clip;
  std::int64_t* step;
  float* loss_scale;           // null without a loss scale
  std::int64_t* scaler_state;  // [2]

  SC_HOST_DEVICE void run() const {
    const float divisor = loss_scale == nullptr ? 1.0F : *loss_scale;
    const auto unscaled = static_cast<float>(sqrt(sums[kSquares]) / divisor);
    const bool finite = sums[kNonFinite] == 0.0;
    const float factor = max_norm > 0.0F && unscaled > max_norm ? max_norm / unscaled : 1.0F;
    *norm = unscaled;
    *clip = finite ? factor / divisor : kNoUpdate;
    if (finite) ++*step;
    if (loss_scale == nullptr) return;
    LossScale now{divisor, scaler_state[0], scaler_state[1]};
    now.update(finite);
    *loss_scale = now.scale;
    scaler_state[0] = now.good;
    scaler_state[1] = now.overflows;
  }
};

}  // namespace sc
