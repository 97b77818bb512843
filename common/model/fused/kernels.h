// The GPU kernels of FusedOps, as functions of raw pointers: no torch. All are enqueued on `stream` and
// return at once.
//   A `void*` is fp32, bf16 or fp16 as `dtype` says; rows are contiguous, start at 16 bytes and hold a
//   multiple of 8 elements. `scratch` is stream_scratch(*_scratch_bytes(...)), `counters` stream_counters();
//   see common/memory/stream_scratch.h. The order of sums over rows depends only on the shape and the number
//   of multiprocessors.
//   Errors  DeviceError if a launch fails; InputError for another dtype.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "common/base/types.h"

namespace sc::fused {

/// The widest row that LayerNorm takes, in elements.
inline constexpr std::int64_t kMaxWidth = 2048;

struct LayerNorm {
  DType dtype;
  std::int64_t rows, width;
  const void *x, *weight = nullptr, *bias = nullptr;
  void* y = nullptr;
  float *mean = nullptr, *rstd = nullptr;
};
void layer_norm(const LayerNorm& op, cudaStream_t stream);

/// LayerNorm of (norm.x + bias) + sum, rounded once. The sum is written to `added`, which may be norm.x. If
/// norm.y is null, only the sum is computed.
struct AddNorm {
  LayerNorm norm;
  const void *bias, *sum;
  void* added;
};
void add_norm(const AddNorm& op, cudaStream_t stream);

/// LayerNorm's backward. `residual`, `of_residual` and `of_grad_x` may be null.
struct LayerNormBackward {
  DType dtype;
  std::int64_t rows, width;
  const void *grad_y, *x;
  const float *mean, *rstd;
  const void *weight, *residual;
  void* grad_x;
  float *of_weight, *of_bias, *of_residual, *of_grad_x;
};
std::int64_t layer_norm_backward_scratch_bytes(std::int64_t width);
void layer_norm_backward(const LayerNormBackward& op, void* scratch, cudaStream_t stream);

/// Sums the columns of m [rows, columns] into sums [columns].
struct ColumnSums {
  DType dtype;
  std::int64_t rows, columns;
  const void* m;
  float* sums;
};
std::int64_t column_scratch_bytes(std::int64_t columns);
void column_sums(const ColumnSums& op, void* scratch, cudaStream_t stream);

/// Multiplies grad [rows, columns] by gelu'(pre), in place; sums [columns] are its sums before rounding.
struct GeluBackward {
  DType dtype;
  std::int64_t rows, columns;
  void* grad;
  const void* pre;
  float* sums;
};
void gelu_backward(const GeluBackward& op, void* scratch, cudaStream_t stream);
/// y [n] = gelu(pre [n]) in its tanh form; n is a multiple of 8.
void gelu(DType dtype, std::int64_t n, const void* pre, void* y, cudaStream_t stream);

/// Stores or adds sums [n] to grad [n] for each part, rounded once to `dtype`.
struct StoreSums {
  static constexpr int kMost = 8;
  struct Part {
    const float* sums;
    void* grad;
    std::int64_t n;
  };
  DType dtype;
  bool accumulate;
  int count = 0;
  Part part[kMost] = {};
};
void store_sums(const StoreSums& op, cudaStream_t stream);

/// Carries out Ops::cross_entropy. If `scale` is null only the loss is computed, and logits are not changed.
struct CrossEntropy {
  DType dtype;
  std::int64_t rows, vocab, padded;  // a row of logits has `padded` elements
  void* logits;
  const std::int64_t* targets;
  const float* scale;
  double *loss_sum, *tokens;
};
std::int64_t cross_entropy_scratch_bytes();
void cross_entropy(const CrossEntropy& op, void* scratch, unsigned* counters, cudaStream_t stream);

/// Carries out Ops::softmax_part: statistics [rows, 2] of the first `columns` of each row's `padded` logits.
struct SoftmaxPart {
  DType dtype;
  std::int64_t rows, columns, padded;
  const void* logits;
  float* statistics;
};
void softmax_part(const SoftmaxPart& op, cudaStream_t stream);

/// Carries out Ops::softmax_gradient for columns [first, first + columns) of the vocabulary, with statistics
/// [ranks, rows, 2]. If `scale` is null only the loss is computed, and logits are not changed. Scratch:
/// cross_entropy_scratch_bytes().
struct SoftmaxGradient {
  DType dtype;
  std::int64_t rows, first, columns, padded, ranks;
  void* logits;
  const std::int64_t* targets;
  const float *statistics, *scale;
  double *loss_sum, *tokens;
};
void softmax_gradient(const SoftmaxGradient& op, void* scratch, unsigned* counters, cudaStream_t stream);

/// Ops::merge_attention: out [batch, tokens, heads, head], lse [batch, heads, tokens]; others, sum and
/// lse_of_sum are so many tokens of rows of `row`, f32 or of dtype. `head` may be any number.
struct MergeAttention {
  DType dtype, others_dtype, sum_dtype;
  std::int64_t batch, tokens, heads, head, row;
  const void* out;
  const float* lse;
  const void* others;
  void* sum;
  float* lse_of_sum;
};
void merge_attention(const MergeAttention& op, cudaStream_t stream);

/// x [rows, width] = wte[token - first] if that is one of wte's `vocab` rows, otherwise 0; plus wpe[row %
/// length] unless wpe is null.
struct Embed {
  DType dtype;
  std::int64_t rows, width, first, vocab;
  const std::int64_t* tokens;
  const void *wte, *wpe;
  void* x;
  std::int64_t length = 1;
};
void embed(const Embed& op, cudaStream_t stream);

/// The backward of the token embedding: rows of grad_x summed in fp32, in token order, then rounded once to
/// grad_dtype. Tokens outside [first, first + vocab) are skipped.
struct EmbedBackward {
  DType dtype, grad_dtype;
  std::int64_t rows, width, first, vocab;  // vocab: rows of grad_wte
  const std::int64_t* tokens;
  const void* grad_x;
  void* grad_wte;
  bool accumulate;
};
std::int64_t embed_backward_scratch_bytes(std::int64_t rows, std::int64_t vocab);
void embed_backward(const EmbedBackward& op, void* scratch, cudaStream_t stream);

/// The backward of positions; grad_x has tokens [first, first + rows) of a micro-batch with rows of `length`
/// tokens.
struct PositionsBackward {
  DType dtype, grad_dtype;
  std::int64_t rows, width, first, length, context;  // context: rows of grad_wpe
  const void* grad_x;
  void* grad_wpe;
  bool accumulate;
};
void positions_backward(const PositionsBackward& op, cudaStream_t stream);

}  // namespace sc::fused
