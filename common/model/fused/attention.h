// Attention by cuDNN on operands where they lie: q, k and v may be parts of one matrix and their gradients of
// another, where ATen's operation returns fresh tensors that would have to be copied.
#pragma once

#include <cuda_runtime_api.h>

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "common/base/types.h"

namespace sc::fused {

/// Elements from one row of the batch to the next, and from one token to the next.
struct Steps {
  std::int64_t row, token;
  auto operator<=>(const Steps&) const = default;
};

/// q, out and their gradients [batch, queries, heads, head]; k, v and theirs [batch, keys, heads, head]; all
/// of `dtype` (bf16 or fp16); lse [batch, heads, queries] fp32. Scale 1 / sqrt(head).
struct AttentionShape {
  DType dtype;
  std::int64_t batch, queries, keys, heads, head;
  Steps q, kv, out, grad_q, grad_kv;  // out's gradient lies as out does
  bool causal;                        // a token sees keys up to its own, of as many
  auto operator<=>(const AttentionShape&) const = default;
  /// Causal, of one matrix [batch, length, 3, heads, head].
  static AttentionShape packed(DType dtype, std::int64_t batch, std::int64_t length, std::int64_t heads,
                               std::int64_t head) {
    const std::int64_t token = heads * head;
    const Steps qkv{3 * length * token, 3 * token};
    return {dtype, batch, length, length, heads, head, qkv, qkv, {length * token, token}, qkv, qkv, true};
  }
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
  struct Inputs {
    const void *q, *k, *v;
  };
  void forward(const AttentionShape& shape, const Inputs& in, void* out, float* lse, void* workspace,
               cudaStream_t stream);
  struct Backward {
    Inputs in;
    const void *grad_out, *out;
    const float* lse;
    void *grad_q, *grad_k, *grad_v;
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
