// One micro-batch as tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace sc {

/// What the loss of a training step is multiplied by, besides one over its number of targets.
struct LossFactor {
  double factor = 1;           // NaN: every gradient shall be NaN, as --inject may ask for
  at::Tensor loss_scale = {};  // [] fp32: fp16's (loss_scale.h); undefined: there is none
};

/// Rows of tokens on the compute device.
struct Batch {
  at::Tensor tokens;   // [B, T] int64
  at::Tensor targets;  // [B, T] int64: the next token; -1 = no loss
  at::Tensor scale;  // [] fp32: what the loss is multiplied by (evaluation: unused). 1 / targets >= 0 of the
                     // *global* batch of this step, times what LossFactor has
  std::int64_t with_loss = 0;  // targets >= 0 of this micro-batch; known in training alone
  double loss_factor = 1;      // LossFactor::factor, for whoever divides by other targets than the step's
};

}  // namespace sc
