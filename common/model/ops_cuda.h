// The operations of a GPU, or stand-ins in a build without GPU code.
#pragma once

#include <memory>

#include "common/model/ops.h"

namespace sc {

/// A GPU's operations. aten: ATen with cuDNN's attention; fused, deterministic: the kernels of ops_fused.cpp.
///   Errors  InputError (exit 69) in a build without GPU code.
std::unique_ptr<const Ops> make_cuda_ops(OpsBackend backend, bool cudnn_attention);
/// Whether cuDNN has no kernel for this run's attention on the current GPU although attention_uses_cudnn says
/// that it takes the shape. Builds the kernels of both directions, which takes a moment.
bool cudnn_lacks_attention(const RunShape& run);

/// Whether cuDNN computes a GPU's attention: in 16 bits, with at least two tokens and a head of at most 128
/// elements in multiples of 8.
inline bool attention_uses_cudnn(at::ScalarType type, std::int64_t sequence, std::int64_t head_dim) {
  return (type == at::kBFloat16 || type == at::kHalf) && sequence > 1 && head_dim % 8 == 0 && head_dim <= 128;
}

}  // namespace sc
