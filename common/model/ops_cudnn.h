// ATen on a GPU with cuDNN's attention instead of the written-out one.
#pragma once

#include <mutex>

#include "common/model/ops_aten.h"
#include "common/model/ops_cuda.h"

namespace sc {

/// Attention through ATen's cuDNN operation if cuDNN takes the shape (attention_uses_cudnn), otherwise the
/// reference's.
///   Allocates  forward: out and lse; backward: the three gradients and cuDNN's fp32 dq (from LibTorch's
///              allocator, freed at once).
class CudnnOps : public AtenOps {
 public:
  /// Uses the reference's attention for every shape if `cudnn` is false.
  explicit CudnnOps(bool cudnn) : cudnn_(cudnn) {}
  void attention(const QueriesKeysValues& in, bool causal, at::Tensor& out, at::Tensor& lse) const override;
  void attention_backward(const at::Tensor& grad_out, const QueriesKeysValues& in, bool causal,
                          const at::Tensor& out, const at::Tensor& lse,
                          QueriesKeysValues& grads) const override;

 protected:
  [[nodiscard]] bool uses_cudnn(const QueriesKeysValues& in) const;

 private:
  // Dropout's random state, [] int64 0, which ATen's operation requires although there is no dropout.
  const at::Tensor& no_seed(const at::Tensor& like) const;
  const bool cudnn_;
  mutable std::once_flag seed_once_;
  mutable at::Tensor seed_;
};

}  // namespace sc
