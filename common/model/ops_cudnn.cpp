#include "common/model/ops_cudnn.h"

#include <ATen/ops/_scaled_dot_product_cudnn_attention.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention_backward.h>
#include <ATen/ops/zeros.h>

#include <optional>
#include <tuple>

namespace sc {

bool CudnnOps::uses_cudnn(const at::Tensor& qkv) const {
  return cudnn_ && qkv.is_cuda() && attention_uses_cudnn(qkv.scalar_type(), qkv.size(1), qkv.size(4));
}

void CudnnOps::attention(const at::Tensor& qkv, at::Tensor& out, at::Tensor& lse) const {
  if (!uses_cudnn(qkv)) return AtenOps::attention(qkv, out, lse);
  const auto results = at::_scaled_dot_product_cudnn_attention(
      heads_of(qkv, 0), heads_of(qkv, 1), heads_of(qkv, 2), /*attn_bias=*/std::nullopt,
      /*compute_log_sumexp=*/true,
      /*dropout_p=*/0.0, /*is_causal=*/true, /*return_debug_mask=*/false);
  out.copy_(std::get<0>(results).transpose(1, 2));
  lse.copy_(std::get<1>(results).view(lse.sizes()));
}

const at::Tensor& CudnnOps::no_seed(const at::Tensor& like) const {
  std::call_once(seed_once_, [&] { seed_ = at::zeros({}, like.options().dtype(at::kLong)); });
  return seed_;
}

void CudnnOps::attention_backward(const at::Tensor& grad_out, const at::Tensor& qkv, const at::Tensor& out,
                                  const at::Tensor& lse, at::Tensor& grad_qkv, at::Tensor& sums) const {
  if (!uses_cudnn(qkv)) return AtenOps::attention_backward(grad_out, qkv, out, lse, grad_qkv, sums);
  const at::Tensor& seed = no_seed(qkv);
  const std::int64_t t = qkv.size(1);
  const auto [q, k, v] = at::_scaled_dot_product_cudnn_attention_backward(
      grad_out.transpose(1, 2), heads_of(qkv, 0), heads_of(qkv, 1), heads_of(qkv, 2), out.transpose(1, 2),
      lse.unsqueeze(-1), seed, seed,
      /*attn_bias=*/at::Tensor(), /*cum_seq_q=*/at::Tensor(), /*cum_seq_k=*/at::Tensor(), t, t,
      /*dropout_p=*/0.0,
      /*is_causal=*/true);
  heads_of(grad_qkv, 0).copy_(q);
  heads_of(grad_qkv, 1).copy_(k);
  heads_of(grad_qkv, 2).copy_(v);
  column_sums(packed_rows(grad_qkv), sums);
}

}  // namespace sc
