#include "common/model/ops_aten.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_log_softmax.h>
#include <ATen/ops/add.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/logaddexp.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sum.h>

#include <cmath>
#include <limits>

namespace sc {
namespace {

constexpr double kLayerNormEps = 1e-5;

// ATen keeps a 16-bit norm's statistics in 16 bits on the CPU, in fp32 on GPUs, and requires the same in
// backward.
at::ScalarType statistics_type(const at::Tensor& x) { return x.is_cpu() ? x.scalar_type() : at::kFloat; }

double attention_scale(const at::Tensor& q) { return 1.0 / std::sqrt(static_cast<double>(q.size(3))); }

// [B, H, T, S] scaled scores in fp32, causal ones with the future at minus infinity.
at::Tensor scores_of(const QueriesKeysValues& in, bool causal) {
  at::Tensor scores =
      at::matmul(by_heads(in.q).to(at::kFloat), by_heads(in.k).to(at::kFloat).transpose(2, 3));
  scores.mul_(attention_scale(in.q));
  if (!causal) return scores;
  const std::int64_t t = in.q.size(1);
  const at::Tensor future = at::ones({t, t}, scores.options().dtype(at::kBool)).triu_(1);
  return scores.masked_fill_(future, -std::numeric_limits<float>::infinity());
}

}  // namespace

void AtenOps::embed(const at::Tensor& tokens, const at::Tensor& wte, const at::Tensor& wpe,
                    at::Tensor& x) const {
  at::Tensor rows = x.view({-1, x.size(2)});
  at::index_select_out(rows, wte, 0, tokens.view({-1}));
  x.add_(wpe.narrow(0, 0, x.size(1)));
}

void AtenOps::linear(const at::Tensor& x, const at::Tensor& w, const at::Tensor& bias, at::Tensor& y) const {
  at::addmm_out(y, bias, x, w.t());
}

void AtenOps::linear_residual(const at::Tensor& x, const at::Tensor& w, const at::Tensor& bias,
                              const at::Tensor& residual, at::Tensor& y) const {
  at::add_out(y, residual, bias);
  at::addmm_out(y, y, x, w.t());
}

void AtenOps::linear_gelu(const at::Tensor& x, const at::Tensor& w, const at::Tensor& bias, at::Tensor& pre,
                          at::Tensor& y) const {
  linear(x, w, bias, pre);
  gelu(pre, y);
}

void AtenOps::matmul(const at::Tensor& x, const at::Tensor& w, at::Tensor& y) const {
  at::mm_out(y, x, w.t());
}

void AtenOps::matmul_backward_input(const at::Tensor& grad_y, const at::Tensor& w, at::Tensor& grad_x) const {
  at::mm_out(grad_x, grad_y, w);
}

void AtenOps::matmul_backward_weight(const at::Tensor& grad_y, const at::Tensor& x, at::Tensor& grad_w,
                                     Write write) const {
  const at::ScalarType type =
      grad_w.scalar_type();  // with fp32 gradients of 16-bit operands, the operands' copies are exact
  const at::Tensor a = grad_y.to(type).t(), b = x.to(type);
  if (write == Write::overwrite) {
    at::mm_out(grad_w, a, b);
  } else {
    at::addmm_out(grad_w, grad_w, a, b);
  }
}

void AtenOps::column_sums(const at::Tensor& m, at::Tensor& sums) const {
  at::sum_out(sums, m, at::IntArrayRef{0}, /*keepdim=*/false, at::kFloat);
}

void AtenOps::store_sums(std::span<const StoredSums> vectors, Write write) const {
  for (const StoredSums& v : vectors) {
    if (write == Write::overwrite) {
      v.grad.copy_(v.sums);
    } else {
      v.grad.add_(v.sums);
    }
  }
}

void AtenOps::gelu(const at::Tensor& pre, at::Tensor& y) const { at::gelu_out(y, pre, "tanh"); }

void AtenOps::gelu_backward(at::Tensor& grad, const at::Tensor& pre, at::Tensor& sums) const {
  at::gelu_backward_out(grad, grad, pre, "tanh");
  column_sums(grad, sums);
}

void AtenOps::layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, at::Tensor& y,
                         at::Tensor& mean, at::Tensor& rstd) const {
  const auto [y_new, mean_new, rstd_new] = at::native_layer_norm(x, {x.size(1)}, weight, bias, kLayerNormEps);
  y.copy_(y_new);
  mean.copy_(mean_new.view({-1}));
  rstd.copy_(rstd_new.view({-1}));
}

void AtenOps::layer_norm_backward(const at::Tensor& grad_y, const at::Tensor& x, const at::Tensor& mean,
                                  const at::Tensor& rstd, const at::Tensor& weight,
                                  const at::Tensor& residual, at::Tensor& grad_x, LayerNormSums& sums) const {
  const at::ScalarType type = statistics_type(x);
  const auto [gx, gw, gb] =
      at::native_layer_norm_backward(grad_y, x, {x.size(1)}, mean.to(type).view({-1, 1}),
                                     rstd.to(type).view({-1, 1}), weight, weight, {true, true, true});
  if (residual.defined()) {
    at::add_out(grad_x, gx, residual);
  } else {
    grad_x.copy_(gx);
  }
  sums.weight.copy_(gw);
  sums.bias.copy_(gb);
  if (sums.residual.defined()) column_sums(residual, sums.residual);
  if (sums.grad_x.defined()) column_sums(grad_x, sums.grad_x);
}

void AtenOps::attention(const QueriesKeysValues& in, bool causal, at::Tensor& out, at::Tensor& lse) const {
  const at::Tensor scores = scores_of(in, causal);
  const at::Tensor row = scores.logsumexp(at::IntArrayRef{-1});
  lse.copy_(row);
  const at::Tensor p = (scores - row.unsqueeze(-1)).exp_();
  out.copy_(by_heads(at::matmul(p, by_heads(in.v).to(at::kFloat))));
}

// With p = exp(scores - lse): dv = p^T do, ds = p (do v^T - rowsum(do * out)) scale, dq = ds k, dk = ds^T q.
void AtenOps::attention_backward(const at::Tensor& grad_out, const QueriesKeysValues& in, bool causal,
                                 const at::Tensor& out, const at::Tensor& lse,
                                 QueriesKeysValues& grads) const {
  const at::Tensor p = (scores_of(in, causal) - lse.unsqueeze(-1)).exp_();
  const at::Tensor g = by_heads(grad_out).to(at::kFloat);
  by_heads(grads.v).copy_(at::matmul(p.transpose(2, 3), g));
  const at::Tensor dot = (g * by_heads(out)).sum(at::IntArrayRef{-1}, /*keepdim=*/true);
  const at::Tensor ds = at::matmul(g, by_heads(in.v).to(at::kFloat).transpose(2, 3))
                            .sub_(dot)
                            .mul_(p)
                            .mul_(attention_scale(in.q));
  by_heads(grads.q).copy_(at::matmul(ds, by_heads(in.k).to(at::kFloat)));
  by_heads(grads.k).copy_(at::matmul(ds.transpose(2, 3), by_heads(in.q).to(at::kFloat)));
}

// log(exp(a) + exp(b)) by the larger of the two, so that neither is infinite.
void AtenOps::merge_attention(const at::Tensor& out, const at::Tensor& lse, const at::Tensor& others,
                              at::Tensor& sum, at::Tensor& lse_of_sum) const {
  const at::Tensor both = at::logaddexp(lse_of_sum, lse);
  const auto weight = [&](const at::Tensor& of) { return (of - both).exp_().transpose(1, 2).unsqueeze(-1); };
  sum.copy_((others * weight(lse_of_sum)).add_(out * weight(lse)));
  lse_of_sum.copy_(both);
}

void AtenOps::cross_entropy(at::Tensor& logits, const at::Tensor& targets, std::int64_t vocab,
                            const at::Tensor& scale, at::Tensor& loss_sum, at::Tensor& tokens) const {
  at::Tensor real = logits.narrow(1, 0, vocab);
  at::Tensor log_p = at::_log_softmax(real.to(at::kFloat), 1, /*half_to_float=*/false);
  const at::Tensor counts = targets.ge(0), column = targets.clamp_min(0).unsqueeze(1);
  const at::Tensor picked = log_p.gather(1, column).squeeze(1).masked_fill_(counts.logical_not(), 0.0);
  loss_sum.sub_(picked.sum(at::kDouble));
  tokens.add_(counts.sum(at::kDouble));
  if (!scale.defined()) return;
  at::Tensor grad = log_p.exp_();
  grad.scatter_add_(1, column, at::ones({}, grad.options()).neg().expand({grad.size(0), 1}));
  grad.mul_((counts * scale).unsqueeze(1));
  real.copy_(grad);
  logits.narrow(1, vocab, logits.size(1) - vocab).zero_();
}

std::unique_ptr<const Ops> make_reference_ops() { return std::make_unique<AtenOps>(); }

}  // namespace sc
