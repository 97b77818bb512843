// Causal attention by cuDNN on packed operands: q, k and v are read from one matrix and their gradients
// written to one. ATen's operation would return three new tensors that have to be copied.
#pragma once

#include <cuda_runtime_api.h>

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "common/base/types.h"

namespace sc::fused {

/// Shapes: qkv and its gradient [batch, length, 3, heads, head], out and its gradient [batch, length, heads,
/// head], all of `dtype` (bf16 or fp16); lse [batch, heads, length] fp32. The scale is 1 / sqrt(head).
struct AttentionShape {
  DType dtype;
  std::int64_t batch, length, heads, head;
  auto operator<=>(const AttentionShape&) const = default;
};

/// Causal attention, forward and backward. Thread-safe. The first call for a shape lets cuDNN build a kernel
/// (its heuristic's first choice); later calls allocate nothing and may be captured.
///   Workspace  workspace_bytes() bytes from the caller.
///   Order      the backward adds up dq in a fixed order if `deterministic`, otherwise as blocks finish.
///   Errors     DeviceError with cuDNN's message.
class Attention {
 public:
  explicit Attention(bool deterministic);
  ~Attention();
  Attention(const Attention&) = delete;
  Attention& operator=(const Attention&) = delete;

  /// Whether this GPU's cuDNN has kernels for forward and backward; builds both.
  bool has(const AttentionShape& shape);
  /// The larger of forward's and backward's workspace, in bytes; builds both kernels.
  std::int64_t workspace_bytes(const AttentionShape& shape);
  void forward(const AttentionShape& shape, const void* qkv, void* out, float* lse, void* workspace,
               cudaStream_t stream);
  struct Backward {
    const void *grad_out, *qkv, *out;
    const float* lse;
    void* grad_qkv;
  };
  void backward(const AttentionShape& shape, const Backward& at, void* workspace, cudaStream_t stream);

 private:
  struct Plans;
  struct Handle;
  Plans& plans(const AttentionShape& shape);

  const bool deterministic_;
  std::mutex mutex_;
  std::unique_ptr<Handle> handle_;
  std::map<AttentionShape, std::unique_ptr<Plans>> plans_;
};

}  // namespace sc::fused
