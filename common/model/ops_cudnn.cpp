#include "common/model/ops_cudnn.h"

#include <ATen/ops/_scaled_dot_product_cudnn_attention.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention_backward.h>
#include <ATen/ops/zeros.h>

#include <optional>
#include <tuple>

namespace sc {

bool CudnnOps::uses_cudnn(const QueriesKeysValues& in) const {
  return cudnn_ && in.q.is_cuda() && attention_uses_cudnn(in.q.scalar_type(), in.q.size(1), in.q.size(3));
}

void CudnnOps::attention(const QueriesKeysValues& in, bool causal, at::Tensor& out, at::Tensor& lse) const {
  if (!uses_cudnn(in)) return AtenOps::attention(in, causal, out, lse);
  const auto results = at::_scaled_dot_product_cudnn_attention(
      by_heads(in.q), by_heads(in.k), by_heads(in.v), /*attn_bias=*/std::nullopt,
      /*compute_log_sumexp=*/true, /*dropout_p=*/0.0, causal, /*return_debug_mask=*/false);
  out.copy_(by_heads(std::get<0>(results)));
  lse.copy_(std::get<1>(results).view(lse.sizes()));
}

const at::Tensor& CudnnOps::no_seed(const at::Tensor& like) const {
  std::call_once(seed_once_, [&] { seed_ = at::zeros({}, like.options().dtype(at::kLong)); });
  return seed_;
}

void CudnnOps::attention_backward(const at::Tensor& grad_out, const QueriesKeysValues& in, bool causal,
                                  const at::Tensor& out, const at::Tensor& lse,
                                  QueriesKeysValues& grads) const {
  if (!uses_cudnn(in)) return AtenOps::attention_backward(grad_out, in, causal, out, lse, grads);
  const at::Tensor& seed = no_seed(in.q);
  const auto [q, k, v] = at::_scaled_dot_product_cudnn_attention_backward(
      by_heads(grad_out), by_heads(in.q), by_heads(in.k), by_heads(in.v), by_heads(out), lse.unsqueeze(-1),
      seed, seed, /*attn_bias=*/at::Tensor(), /*cum_seq_q=*/at::Tensor(), /*cum_seq_k=*/at::Tensor(),
      in.q.size(1), in.k.size(1), /*dropout_p=*/0.0, causal);
  by_heads(grads.q).copy_(q);
  by_heads(grads.k).copy_(k);
  by_heads(grads.v).copy_(v);
}

}  // namespace sc
