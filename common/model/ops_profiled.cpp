#include "common/model/ops_profiled.h"

#include <functional>
#include <utility>

#include "common/base/op_profile.h"

namespace sc {
namespace {

double count(const at::Tensor& t) { return static_cast<double>(t.numel()); }
double size(const at::Tensor& t) { return static_cast<double>(t.nbytes()); }
OpCost product(std::int64_t m, std::int64_t n, std::int64_t k) {
  const ProductShape shape{m, n, k};
  return {shape.flops(), 0, shape};
}
OpCost product(const at::Tensor& y, const at::Tensor& x) { return product(y.size(0), y.size(1), x.size(1)); }
// Two products over [T, S], half of each if they are causal.
double flops_of(const QueriesKeysValues& in, bool causal) {
  return (causal ? 2.0 : 4.0) * count(in.q) * static_cast<double>(in.k.size(1));
}

class ProfiledOps final : public Ops {
 public:
  explicit ProfiledOps(std::shared_ptr<const Ops> inner) : inner_(std::move(inner)) {}
  void embed(const at::Tensor& tokens, const at::Tensor& wte, const at::Tensor& wpe,
             at::Tensor& x) const override {
    profiled("embedding", {0, 2 * size(x)}, &Ops::embed, tokens, wte, wpe, x);
  }
  void linear(const at::Tensor& x, const at::Tensor& w, const at::Tensor& bias,
              at::Tensor& y) const override {
    profiled("product, forward", product(y, x), &Ops::linear, x, w, bias, y);
  }
  void linear_residual(const at::Tensor& x, const at::Tensor& w, const at::Tensor& bias,
                       const at::Tensor& residual, at::Tensor& y) const override {
    profiled("product + residual", product(y, x), &Ops::linear_residual, x, w, bias, residual, y);
  }
  void linear_gelu(const at::Tensor& x, const at::Tensor& w, const at::Tensor& bias, at::Tensor& pre,
                   at::Tensor& y) const override {
    profiled("product + GELU", product(y, x), &Ops::linear_gelu, x, w, bias, pre, y);
  }
  void matmul(const at::Tensor& x, const at::Tensor& w, at::Tensor& y) const override {
    profiled("head, forward", product(y, x), &Ops::matmul, x, w, y);
  }
  void matmul_backward_input(const at::Tensor& grad_y, const at::Tensor& w,
                             at::Tensor& grad_x) const override {
    profiled("product, input gradient", product(grad_x, grad_y), &Ops::matmul_backward_input, grad_y, w,
             grad_x);
  }
  void matmul_backward_weight(const at::Tensor& grad_y, const at::Tensor& x, at::Tensor& grad_w,
                              Write write) const override {
    profiled("product, weight gradient", product(grad_w.size(0), grad_w.size(1), x.size(0)),
             &Ops::matmul_backward_weight, grad_y, x, grad_w, write);
  }
  void column_sums(const at::Tensor& m, at::Tensor& sums) const override {
    profiled("column sums", {0, size(m)}, &Ops::column_sums, m, sums);
  }
  void store_sums(std::span<const StoredSums> vectors, Write write) const override {
    double bytes = 0;
    for (const StoredSums& v : vectors) bytes += size(v.sums) + size(v.grad);
    profiled("store sums", {0, bytes}, &Ops::store_sums, vectors, write);
  }
  void gelu(const at::Tensor& pre, at::Tensor& y) const override {
    profiled("GELU", {0, 2 * size(y)}, &Ops::gelu, pre, y);
  }
  void gelu_backward(at::Tensor& grad, const at::Tensor& pre, at::Tensor& sums) const override {
    profiled("GELU backward", {0, 3 * size(grad)}, &Ops::gelu_backward, grad, pre, sums);
  }
  void layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, at::Tensor& y,
                  at::Tensor& mean, at::Tensor& rstd) const override {
    profiled("LayerNorm", {0, 2 * size(x)}, &Ops::layer_norm, x, weight, bias, y, mean, rstd);
  }
  void layer_norm_backward(const at::Tensor& grad_y, const at::Tensor& x, const at::Tensor& mean,
                           const at::Tensor& rstd, const at::Tensor& weight, const at::Tensor& residual,
                           at::Tensor& grad_x, LayerNormSums& sums) const override {
    profiled("LayerNorm backward", {0, (residual.defined() ? 4 : 3) * size(x)}, &Ops::layer_norm_backward,
             grad_y, x, mean, rstd, weight, residual, grad_x, sums);
  }
  void attention(const QueriesKeysValues& in, bool causal, at::Tensor& out, at::Tensor& lse) const override {
    profiled("attention", {flops_of(in, causal), 0}, &Ops::attention, in, causal, out, lse);
  }
  void attention_backward(const at::Tensor& grad_out, const QueriesKeysValues& in, bool causal,
                          const at::Tensor& out, const at::Tensor& lse,
                          QueriesKeysValues& grads) const override {
    profiled("attention backward", {2.5 * flops_of(in, causal), 0}, &Ops::attention_backward, grad_out, in,
             causal, out, lse, grads);
  }
  void merge_attention(const at::Tensor& out, const at::Tensor& lse, const at::Tensor& others,
                       at::Tensor& sum, at::Tensor& lse_of_sum) const override {
    profiled("attention, merged", {0, size(out) + size(others) + size(sum)}, &Ops::merge_attention, out, lse,
             others, sum, lse_of_sum);
  }
  void cross_entropy(at::Tensor& logits, const at::Tensor& targets, std::int64_t vocab,
                     const at::Tensor& scale, at::Tensor& loss_sum, at::Tensor& tokens) const override {
    profiled("cross entropy", {0, 2 * size(logits)}, &Ops::cross_entropy, logits, targets, vocab, scale,
             loss_sum, tokens);
  }
  void embed_part(const at::Tensor& tokens, const at::Tensor& wte, Range rows, at::Tensor& x) const override {
    profiled("embedding", {0, 2 * size(x)}, &Ops::embed_part, tokens, wte, rows, x);
  }
  void embed_part_backward(const at::Tensor& tokens, const at::Tensor& grad_x, Range rows,
                           at::Tensor& grad_wte, Write write) const override {
    profiled("embedding backward", {0, size(grad_x) + size(grad_wte)}, &Ops::embed_part_backward, tokens,
             grad_x, rows, grad_wte, write);
  }
  void add_positions(const at::Tensor& sum, const at::Tensor& wpe, Range run, std::int64_t length,
                     at::Tensor& x) const override {
    profiled("embedding", {0, 3 * size(x)}, &Ops::add_positions, sum, wpe, run, length, x);
  }
  void positions_backward(const at::Tensor& grad_x, Range run, std::int64_t length, at::Tensor& grad_wpe,
                          Write write) const override {
    profiled("embedding backward", {0, size(grad_x) + size(grad_wpe)}, &Ops::positions_backward, grad_x, run,
             length, grad_wpe, write);
  }
  void add_norm(const AddNorm& op) const override {
    profiled("sum + residual, LayerNorm", {0, 4 * size(op.x)}, &Ops::add_norm, op);
  }
  void softmax_part(const at::Tensor& logits, std::int64_t columns, at::Tensor& statistics) const override {
    profiled("softmax, statistics", {0, size(logits)}, &Ops::softmax_part, logits, columns, statistics);
  }
  void softmax_gradient(at::Tensor& logits, const at::Tensor& targets, Range columns,
                        const at::Tensor& statistics, const at::Tensor& scale, at::Tensor& loss_sum,
                        at::Tensor& tokens) const override {
    profiled("cross entropy", {0, 2 * size(logits)}, &Ops::softmax_gradient, logits, targets, columns,
             statistics, scale, loss_sum, tokens);
  }

 private:
  template <class Function, class... Arguments>
  void profiled(const char* name, const OpCost& cost, Function function, Arguments&&... arguments) const {
    const ProfiledOp op(name, cost);
    std::invoke(function, *inner_, std::forward<Arguments>(arguments)...);
  }
  std::shared_ptr<const Ops> inner_;
};

}  // namespace

std::shared_ptr<const Ops> make_profiled_ops(std::shared_ptr<const Ops> inner) {
  return std::make_shared<ProfiledOps>(std::move(inner));
}

}  // namespace sc
