// Operations of the CPU: ATen's fused attention, and fp32 loops where ATen needs several passes or fresh
// memory.
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>

#include "common/base/check.h"
#include "common/model/cpu_kernels.h"
#include "common/model/ops_aten.h"
#include "common/model/ops_cuda.h"

namespace sc {
namespace {

// Calls f for pieces of [0, n) on all threads; f works elementwise, so that cutting changes no bit.
template <class F>
void in_pieces(std::int64_t n, const F& f) {
  constexpr std::int64_t kGrain = 1 << 15;
  at::parallel_for(0, n, kGrain, [&](std::int64_t begin, std::int64_t end) { f(begin, end - begin); });
}

class CpuOps final : public AtenOps {
 public:
  void attention(const QueriesKeysValues& in, bool causal, at::Tensor& out, at::Tensor& lse) const override {
    const auto [out_new, lse_new] = at::_scaled_dot_product_flash_attention_for_cpu(
        by_heads(in.q), by_heads(in.k), by_heads(in.v), /*dropout_p=*/0.0, causal);
    out.copy_(by_heads(out_new));
    lse.copy_(lse_new);
  }

  void attention_backward(const at::Tensor& grad_out, const QueriesKeysValues& in, bool causal,
                          const at::Tensor& out, const at::Tensor& lse,
                          QueriesKeysValues& grads) const override {
    const auto [gq, gk, gv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
        by_heads(grad_out), by_heads(in.q), by_heads(in.k), by_heads(in.v), by_heads(out), lse,
        /*dropout_p=*/0.0, causal);
    by_heads(grads.q).copy_(gq);
    by_heads(grads.k).copy_(gk);
    by_heads(grads.v).copy_(gv);
  }

  void gelu(const at::Tensor& pre, at::Tensor& y) const override {
    if (pre.scalar_type() != at::kFloat) return AtenOps::gelu(pre, y);
    const float* x = pre.const_data_ptr<float>();
    auto* out = y.mutable_data_ptr<float>();
    in_pieces(pre.numel(), [&](std::int64_t begin, std::int64_t n) { gelu_f32(n, x + begin, out + begin); });
  }

  void gelu_backward(at::Tensor& grad, const at::Tensor& pre, at::Tensor& sums) const override {
    if (pre.scalar_type() != at::kFloat) return AtenOps::gelu_backward(grad, pre, sums);
    const float* x = pre.const_data_ptr<float>();
    auto* g = grad.mutable_data_ptr<float>();
    in_pieces(pre.numel(),
              [&](std::int64_t begin, std::int64_t n) { gelu_backward_f32(n, x + begin, g + begin); });
    column_sums(grad, sums);
  }

  void cross_entropy(at::Tensor& logits, const at::Tensor& targets, std::int64_t vocab,
                     const at::Tensor& scale, at::Tensor& loss_sum, at::Tensor& tokens) const override {
    if (logits.scalar_type() != at::kFloat) {
      return AtenOps::cross_entropy(logits, targets, vocab, scale, loss_sum, tokens);
    }
    const LogitRows rows{logits.size(0), vocab, logits.size(1), logits.mutable_data_ptr<float>()};
    const CrossEntropySums sums =
        cross_entropy_f32(rows, targets.const_data_ptr<std::int64_t>(),
                          scale.defined() ? scale.const_data_ptr<float>() : nullptr);
    *loss_sum.mutable_data_ptr<double>() += sums.loss;
    *tokens.mutable_data_ptr<double>() += static_cast<double>(sums.tokens);
  }

  void softmax_part(const at::Tensor& logits, std::int64_t columns, at::Tensor& statistics) const override {
    if (logits.scalar_type() != at::kFloat) return AtenOps::softmax_part(logits, columns, statistics);
    const LogitRows rows{logits.size(0), columns, logits.size(1), logits.mutable_data_ptr<float>()};
    softmax_part_f32(rows, statistics.mutable_data_ptr<float>());
  }

  void softmax_gradient(at::Tensor& logits, const at::Tensor& targets, Range columns,
                        const at::Tensor& statistics, const at::Tensor& scale, at::Tensor& loss_sum,
                        at::Tensor& tokens) const override {
    if (logits.scalar_type() != at::kFloat)
      return AtenOps::softmax_gradient(logits, targets, columns, statistics, scale, loss_sum, tokens);
    const LogitRows rows{logits.size(0), columns.size(), logits.size(1), logits.mutable_data_ptr<float>()};
    const RowTargets wanted{targets.const_data_ptr<std::int64_t>(), columns.begin};
    const SoftmaxParts parts{statistics.size(0), statistics.const_data_ptr<float>()};
    const CrossEntropySums sums =
        softmax_gradient_f32(rows, wanted, parts, scale.defined() ? scale.const_data_ptr<float>() : nullptr);
    *loss_sum.mutable_data_ptr<double>() += sums.loss;
    *tokens.mutable_data_ptr<double>() += static_cast<double>(sums.tokens);
  }
};

}  // namespace

std::unique_ptr<const Ops> make_ops(OpsBackend backend, DeviceKind device, bool cudnn_attention) {
  if (device == DeviceKind::cuda) return make_cuda_ops(backend, cudnn_attention);
  if (backend == OpsBackend::aten) return std::make_unique<CpuOps>();
  throw InputError(ExitCode::missing, "--ops fused", "the fused operations are GPU kernels",
                   "--ops aten, or --device cuda");
}

}  // namespace sc
