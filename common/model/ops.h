// The arithmetic of a GPT: forward and backward of each layer, writing into tensors of the caller.
//   Matrices are row-major views; N = B * T rows. Every function writes all of its outputs (or adds to them,
//   where Write says so) and keeps nothing. With one intra-op thread equal inputs give equal bits, wherever
//   the operands lie in memory. `sums` outputs are [n] fp32 for every dtype, so that a bias's gradient is
//   rounded once. Memory that an implementation allocates and frees inside a call: plan_op_scratch_bytes.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <span>

#include "common/base/range.h"
#include "common/memory/plan.h"

namespace sc {

enum class Write { overwrite, accumulate };

/// Column sums that a LayerNorm's backward takes while its rows are in cache; `residual` and `grad_x` may be
/// undefined.
struct LayerNormSums {
  at::Tensor weight, bias;  // [d] gradients of the norm's own parameters
  // The columns of `residual`, [d]: the bias gradient of the linear layer that ends the branch before it.
  at::Tensor residual;
  at::Tensor grad_x;  // [d] columns of `grad_x`: the bias gradient of the linear layer that wrote x
};

/// One vector's gradient, summed in fp32 (sums [n]), and where it is stored (grad [n]).
struct StoredSums {
  at::Tensor sums, grad;
};

/// Finishes a branch after its sum over ranks, and applies the norm that follows (none if `weight` is
/// undefined).
struct AddNorm {
  at::Tensor in, bias, sum;      // [n, d], [d], [n, d]
  at::Tensor x;                  // [n, d] output; may be `in`
  at::Tensor weight, norm_bias;  // [d]
  at::Tensor y, mean, rstd;      // outputs: [n, d], and twice [n] fp32
};

/// What attention reads, or their gradients: views, also of some tokens of longer rows, of which a token's
/// heads lie without a gap, [H, D].
struct QueriesKeysValues {
  at::Tensor q;     // [B, T, H, D]
  at::Tensor k, v;  // [B, S, H, D], one like the other
};
/// Of a packed matrix [B, T, 3, H, D].
inline QueriesKeysValues unpacked(const at::Tensor& qkv) {
  return {qkv.select(2, 0), qkv.select(2, 1), qkv.select(2, 2)};
}

/// One implementation of the arithmetic, for one device. Any number of threads may call it at once.
class Ops {
 public:
  virtual ~Ops() = default;

  /// x [B, T, d] = wte[tokens] + wpe[0..T).  tokens [B, T] int64, wte [V_pad, d], wpe [context, d].
  virtual void embed(const at::Tensor& tokens, const at::Tensor& wte, const at::Tensor& wpe,
                     at::Tensor& x) const = 0;

  /// y [N, out] = x [N, in] w^T + bias; w [out, in], bias [out].
  virtual void linear(const at::Tensor& x, const at::Tensor& w, const at::Tensor& bias,
                      at::Tensor& y) const = 0;
  /// y [N, out] = residual + x w^T + bias; residual [N, out] may not alias y.
  virtual void linear_residual(const at::Tensor& x, const at::Tensor& w, const at::Tensor& bias,
                               const at::Tensor& residual, at::Tensor& y) const = 0;
  /// pre [N, out] = x w^T + bias, y [N, out] = gelu(pre) in its tanh form.
  virtual void linear_gelu(const at::Tensor& x, const at::Tensor& w, const at::Tensor& bias, at::Tensor& pre,
                           at::Tensor& y) const = 0;
  /// y [N, out] = x [N, in] w^T, for the head.
  virtual void matmul(const at::Tensor& x, const at::Tensor& w, at::Tensor& y) const = 0;
  /// grad_x [N, in] = grad_y [N, out] w.
  virtual void matmul_backward_input(const at::Tensor& grad_y, const at::Tensor& w,
                                     at::Tensor& grad_x) const = 0;
  /// Writes or adds grad_y^T x to grad_w [out, in], which may be fp32 with 16-bit operands.
  virtual void matmul_backward_weight(const at::Tensor& grad_y, const at::Tensor& x, at::Tensor& grad_w,
                                      Write write) const = 0;
  /// sums [n] = the column sums of m [N, n].
  virtual void column_sums(const at::Tensor& m, at::Tensor& sums) const = 0;
  /// Writes or adds each vector's sums to its gradient, rounded to its dtype, which all gradients share.
  virtual void store_sums(std::span<const StoredSums> vectors, Write write) const = 0;

  /// y = gelu(pre), for recomputation in backward.
  virtual void gelu(const at::Tensor& pre, at::Tensor& y) const = 0;
  /// Turns grad [N, n]of gelu's output into that of `pre`, in place; sums [n] are its column sums.
  virtual void gelu_backward(at::Tensor& grad, const at::Tensor& pre, at::Tensor& sums) const = 0;

  /// y [N, d] = (x - mean) rstd weight + bias, with eps 1e-5; mean, rstd [N] fp32.
  virtual void layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                          at::Tensor& y, at::Tensor& mean, at::Tensor& rstd) const = 0;
  /// grad_x = the norm's gradient (+ residual, if defined: the gradient that reaches x past the norm). grad_x
  /// aliases nothing.
  virtual void layer_norm_backward(const at::Tensor& grad_y, const at::Tensor& x, const at::Tensor& mean,
                                   const at::Tensor& rstd, const at::Tensor& weight,
                                   const at::Tensor& residual, at::Tensor& grad_x,
                                   LayerNormSums& sums) const = 0;

  /// Attention, scale 1/sqrt(D). out [B, T, H, D], lse [B, H, T] fp32 (log of each row's sum of
  /// exponentials).
  ///   causal  S = T, and a token sees the keys up to its own; otherwise all
  virtual void attention(const QueriesKeysValues& in, bool causal, at::Tensor& out,
                         at::Tensor& lse) const = 0;
  /// out and lse may be of more keys than these, of which the gradients are then summands.
  virtual void attention_backward(const at::Tensor& grad_out, const QueriesKeysValues& in, bool causal,
                                  const at::Tensor& out, const at::Tensor& lse,
                                  QueriesKeysValues& grads) const = 0;

  /// A softmax over some keys joins the one over others: `sum` and lse_of_sum become what attention over all
  /// of them would give.
  ///   out, lse            as attention leaves them
  ///   others, lse_of_sum  the others' output, where `sum` may be, and their lse
  ///   sum                 like `others` fp32 or of out's dtype; the three may be some tokens of longer rows
  virtual void merge_attention(const at::Tensor& out, const at::Tensor& lse, const at::Tensor& others,
                               at::Tensor& sum, at::Tensor& lse_of_sum) const = 0;

  /// Adds the rows' cross entropy (nats) to loss_sum, and the number of targets >= 0 to tokens, both [] fp64.
  ///   logits  [n, V_pad], of which the first `vocab` columns count. If `scale` ([] fp32) is defined, they
  ///           become their gradient: (softmax - onehot) * scale, zero in padding columns and in rows without
  ///           a target. Otherwise they are left undefined.
  ///   targets [n] int64; a target < 0 has no loss.
  virtual void cross_entropy(at::Tensor& logits, const at::Tensor& targets, std::int64_t vocab,
                             const at::Tensor& scale, at::Tensor& loss_sum, at::Tensor& tokens) const = 0;

  // The operations of a tensor rank, which has a part of the vocabulary and a run of a micro-batch's tokens;
  // backward of the embedding is the same where one rank has all.

  /// x [N, d] = wte[tokens] for tokens in `rows`, otherwise 0. tokens [B, T]; wte [rows.size(), d].
  virtual void embed_part(const at::Tensor& tokens, const at::Tensor& wte, Range rows,
                          at::Tensor& x) const = 0;
  /// Adds rows of grad_x [N, d], in token order, to grad_wte [rows.size(), d] for tokens in `rows`. With
  /// Write::overwrite rows without a token become zero.
  virtual void embed_part_backward(const at::Tensor& tokens, const at::Tensor& grad_x, Range rows,
                                   at::Tensor& grad_wte, Write write) const = 0;
  /// x [n, d] = sum + wpe, for the tokens `run` of a micro-batch with `length` tokens per row.
  virtual void add_positions(const at::Tensor& sum, const at::Tensor& wpe, Range run, std::int64_t length,
                             at::Tensor& x) const = 0;
  /// Adds rows of grad_x [n, d] in token order to grad_wpe [context, d], as above.
  virtual void positions_backward(const at::Tensor& grad_x, Range run, std::int64_t length,
                                  at::Tensor& grad_wpe, Write write) const = 0;
  /// x = (in + bias) + sum after a sum over ranks, and its layer_norm.
  virtual void add_norm(const AddNorm& op) const = 0;
  /// First step of a softmax over columns of several ranks: statistics [n, 2] fp32 of this rank's columns,
  /// which are their maximum m and the sum of exp(logit - m); -inf and 0 if there are no columns. The ranks
  /// then gather the statistics.
  ///   logits  [n, v], of which the first `columns` count.
  virtual void softmax_part(const at::Tensor& logits, std::int64_t columns, at::Tensor& statistics) const = 0;
  /// Second step of that softmax: for rows whose target is in this rank's columns [first, first + columns) of
  /// the vocabulary, adds the cross entropy to loss_sum and their number to tokens. `scale` and logits as in
  /// cross_entropy.
  ///   statistics  [ranks, n, 2] of all ranks, which are added up in rank order.
  virtual void softmax_gradient(at::Tensor& logits, const at::Tensor& targets, Range columns,
                                const at::Tensor& statistics, const at::Tensor& scale, at::Tensor& loss_sum,
                                at::Tensor& tokens) const = 0;
};

/// ATen on any device and dtype, the reference for other implementations. Its attention holds [B, H, T, T].
std::unique_ptr<const Ops> make_reference_ops();
/// The fastest implementation for a backend and device. On the CPU: the reference with ATen's fused
/// attention, and with our own fp32 loops where they were measured to be faster (ops_cpu.cpp).
///   cudnn_attention  whether a GPU's attention may be cuDNN's (attention_uses_cudnn), not the reference's
///   Errors           InputError (exit 69) for a backend that this build or device does not have.
std::unique_ptr<const Ops> make_ops(OpsBackend backend, DeviceKind device, bool cudnn_attention = true);

}  // namespace sc
