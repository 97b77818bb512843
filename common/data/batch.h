// One micro-batch as tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace sc {

/// Rows of tokens on the compute device.
struct Batch {
  at::Tensor tokens;   // [B, T] int64
  at::Tensor targets;  // [B, T] int64: the next token; -1 = no loss
  at::Tensor scale;    // [] fp32: 1 / (targets >= 0 in the *global* batch of this step); unused in evaluation
  std::int64_t with_loss = 0;  // targets >= 0 of this micro-batch; set in training only
};

}  // namespace sc
