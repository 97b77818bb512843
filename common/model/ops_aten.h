// The reference implementation of Ops; others derive from it and override what they do better.
#pragma once

#include "common/model/ops.h"

namespace sc {

/// [B, T, H, D] as [B, H, T, D], and back.
inline at::Tensor by_heads(const at::Tensor& t) { return t.transpose(1, 2); }

class AtenOps : public Ops {
 public:
  void embed(const at::Tensor& tokens, const at::Tensor& wte, const at::Tensor& wpe,
             at::Tensor& x) const override;
  void linear(const at::Tensor& x, const at::Tensor& w, const at::Tensor& bias, at::Tensor& y) const override;
  void linear_residual(const at::Tensor& x, const at::Tensor& w, const at::Tensor& bias,
                       const at::Tensor& residual, at::Tensor& y) const override;
  void linear_gelu(const at::Tensor& x, const at::Tensor& w, const at::Tensor& bias, at::Tensor& pre,
                   at::Tensor& y) const override;
  void matmul(const at::Tensor& x, const at::Tensor& w, at::Tensor& y) const override;
  void matmul_backward_input(const at::Tensor& grad_y, const at::Tensor& w,
                             at::Tensor& grad_x) const override;
  void matmul_backward_weight(const at::Tensor& grad_y, const at::Tensor& x, at::Tensor& grad_w,
                              Write write) const override;
  void column_sums(const at::Tensor& m, at::Tensor& sums) const override;
  void store_sums(std::span<const StoredSums> vectors, Write write) const override;
  void gelu(const at::Tensor& pre, at::Tensor& y) const override;
  void gelu_backward(at::Tensor& grad, const at::Tensor& pre, at::Tensor& sums) const override;
  void layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, at::Tensor& y,
                  at::Tensor& mean, at::Tensor& rstd) const override;
  void layer_norm_backward(const at::Tensor& grad_y, const at::Tensor& x, const at::Tensor& mean,
                           const at::Tensor& rstd, const at::Tensor& weight, const at::Tensor& residual,
                           at::Tensor& grad_x, LayerNormSums& sums) const override;
  void attention(const QueriesKeysValues& in, bool causal, at::Tensor& out, at::Tensor& lse) const override;
  void attention_backward(const at::Tensor& grad_out, const QueriesKeysValues& in, bool causal,
                          const at::Tensor& out, const at::Tensor& lse,
                          QueriesKeysValues& grads) const override;
  void merge_attention(const at::Tensor& out, const at::Tensor& lse, const at::Tensor& others,
                       at::Tensor& sum, at::Tensor& lse_of_sum) const override;
  void cross_entropy(at::Tensor& logits, const at::Tensor& targets, std::int64_t vocab,
                     const at::Tensor& scale, at::Tensor& loss_sum, at::Tensor& tokens) const override;

  void embed_part(const at::Tensor& tokens, const at::Tensor& wte, Range rows, at::Tensor& x) const override;
  void embed_part_backward(const at::Tensor& tokens, const at::Tensor& grad_x, Range rows,
                           at::Tensor& grad_wte, Write write) const override;
  void add_positions(const at::Tensor& sum, const at::Tensor& wpe, Range run, std::int64_t length,
                     at::Tensor& x) const override;
  void positions_backward(const at::Tensor& grad_x, Range run, std::int64_t length, at::Tensor& grad_wpe,
                          Write write) const override;
  void add_norm(const AddNorm& op) const override;
  void softmax_part(const at::Tensor& logits, std::int64_t columns, at::Tensor& statistics) const override;
  void softmax_gradient(at::Tensor& logits, const at::Tensor& targets, Range columns,
                        const at::Tensor& statistics, const at::Tensor& scale, at::Tensor& loss_sum,
                        at::Tensor& tokens) const override;
};

}  // namespace sc
