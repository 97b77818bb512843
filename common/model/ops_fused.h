// The GPU's own kernels where ATen needs several passes over memory: norms, GELU's backward, sums over
// columns, the residual in a product, cross entropy, embedding. Attention is cuDNN's, without copies; all
// other products are ATen's.
//   The 16-bit path is what they are made for; fp32 works too. A step allocates nothing, but where ATen
//   computes: attention in fp32 or that cuDNN does not take, rows of more than kWidestFusedRow elements.
//   Scratch: common/memory/stream_scratch.h. Bit-equal run to run, attention's backward only if
//   `deterministic`: otherwise it adds up dq as blocks finish, which is faster.
//   An operation whose rows are not whole multiples of 8 elements at 16-byte addresses goes to its ATen twin,
//   too:
//   GPT's shapes and ParamLayout's alignment never do.
#pragma once

#include "common/model/fused/attention.h"
#include "common/model/fused/lt_matmul.h"
#include "common/model/ops_cudnn.h"

namespace sc {

class FusedOps final : public CudnnOps {
 public:
  FusedOps(bool deterministic, bool cudnn) : CudnnOps(cudnn), attention_(deterministic) {}
  void embed(const at::Tensor& tokens, const at::Tensor& wte, const at::Tensor& wpe,
             at::Tensor& x) const override;
  void embed_backward(const at::Tensor& tokens, const at::Tensor& grad_x, at::Tensor& grad_wte, Write wte,
                      at::Tensor& grad_wpe, Write wpe) const override;
  void linear_residual(const at::Tensor& x, const at::Tensor& w, const at::Tensor& bias,
                       const at::Tensor& residual, at::Tensor& y) const override;
  /// GELU in the product's epilogue for many rows; a kernel of its own for few, where that is faster.
  void linear_gelu(const at::Tensor& x, const at::Tensor& w, const at::Tensor& bias, at::Tensor& pre,
                   at::Tensor& y) const override;
  /// cublasLt where grad_w is fp32 beside 16-bit operands; ATen otherwise.
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
  /// cuDNN on the packed operands: no fresh tensors, no copies.
  void attention(const at::Tensor& qkv, at::Tensor& out, at::Tensor& lse) const override;
  void attention_backward(const at::Tensor& grad_out, const at::Tensor& qkv, const at::Tensor& out,
                          const at::Tensor& lse, at::Tensor& grad_qkv, at::Tensor& sums) const override;
  void cross_entropy(at::Tensor& logits, const at::Tensor& targets, std::int64_t vocab,
                     const at::Tensor& scale, at::Tensor& loss_sum, at::Tensor& tokens) const override;
  void embed_part(const at::Tensor& tokens, const at::Tensor& wte, Range rows, at::Tensor& x) const override;
  void embed_part_backward(const at::Tensor& tokens, const at::Tensor& grad_x, Range rows,
                           at::Tensor& grad_wte, Write write) const override;
  void positions_backward(const at::Tensor& grad_x, Range run, std::int64_t length, at::Tensor& grad_wpe,
                          Write write) const override;
  void add_norm(const AddNorm& op) const override;
  void softmax_part(const at::Tensor& logits, std::int64_t columns, at::Tensor& statistics) const override;
  void softmax_gradient(at::Tensor& logits, const at::Tensor& targets, Range columns,
                        const at::Tensor& statistics, const at::Tensor& scale, at::Tensor& loss_sum,
                        at::Tensor& tokens) const override;

 private:
  mutable fused::Attention attention_;
  mutable fused::LtMatmul products_;
};

}  // namespace sc
