// The operations of a GPU, whether this build has any or not.
#pragma once

#include <memory>

#include "common/model/ops.h"

namespace sc {

/// aten: ATen with cuDNN's attention; fused, deterministic: the kernels of ops_fused.h.
///   Errors  InputError (exit 69) in a build without GPU code.
std::unique_ptr<const Ops> make_cuda_ops(OpsBackend backend, bool cudnn_attention);
/// Whether cuDNN has no kernel for this run's attention on the current GPU, although attention_uses_cudnn
/// says that its shape is one. Asks cuDNN for both directions, which takes it a moment.
bool cudnn_lacks_attention(const RunShape& run);

/// Whether a GPU's attention is cuDNN's: 16 bits, a head of at most 128 elements in multiples of 8, at least
/// two tokens.
inline bool attention_uses_cudnn(at::ScalarType type, std::int64_t sequence, std::int64_t head_dim) {
  return (type == at::kBFloat16 || type == at::kHalf) && sequence > 1 && head_dim % 8 == 0 && head_dim <= 128;
}

}  // namespace sc
