#include "common/model/gpt_parts.h"

#include <algorithm>

namespace sc {

// --- embedding ---------------------------------------------------------------------------------------------

void GptParts::embed(const UnitTensors& params0, const at::Tensor& tokens, at::Tensor& partial) const {
  ops_->embed_part(tokens, view(0, params0, kWte), sizes_.vocab, partial);
}

void GptParts::positions(const UnitTensors& params0, const at::Tensor& sum, at::Tensor& x) const {
  for_each_run([&](Range here, Range of_run, Range positions) {
    at::Tensor x_here = part(x, here);
    ops_->add_positions(part(sum, here), part(view(0, params0, kWpe), positions), of_run, sizes_.T, x_here);
  });
}

void GptParts::embed_backward(const at::Tensor& tokens, const at::Tensor& gradient, const UnitTensors& grads0,
                              Write write) const {
  at::Tensor wte = view(0, grads0, kWte);
  ops_->embed_part_backward(tokens, gradient, sizes_.vocab, wte, write);
}

// --- a block's halves --------------------------------------------------------------------------------------

void GptParts::second_product(int unit, Half half, const UnitTensors& params, BlockSaved& saved,
                              const at::Tensor& gelu, at::Tensor& partial) const {
  const at::Tensor second = view(unit, params, tensors_of(half).second_weight);
  if (half == Half::mlp) return ops_->matmul(gelu, second, partial);
  attend(unit, saved);
  ops_->matmul(saved.att, second, partial);
}

// [anchor: bias-once]
// The second matrix's bias is added to the sum, not to a summand: on every rank it would count t times.
void GptParts::add_norm(int unit, Half half, std::span<const UnitTensors> params, const at::Tensor& in,
                        const at::Tensor& sum, at::Tensor& out, BlockNorm* norm) const {
  const auto of = [&](int of_unit, std::size_t tensor) { return view(of_unit, params[of_unit], tensor); };
  AddNorm op{in, of(unit, tensors_of(half).second_bias), sum, out, {}, {}, {}, {}, {}};
  if (norm != nullptr) {
    const int next = half == Half::attention ? unit : unit + 1;
    const HalfTensors behind = tensors_of(half == Half::attention ? Half::mlp : Half::attention);
    const bool head = next == layout_.last_unit();
    op.weight = of(next, head ? std::size_t{kLnfWeight} : behind.norm_weight);
    op.norm_bias = of(next, head ? std::size_t{kLnfBias} : behind.norm_bias);
    op.y = norm->rows.own, op.mean = norm->mean, op.rstd = norm->rstd;
  }
  ops_->add_norm(op);
}

void GptParts::norm_backward(int unit, Half half, const UnitTensors& params, const BlockSaved& saved,
                             const at::Tensor& sum, const at::Tensor& grad_y, BlockGrads& left,
                             at::Tensor& out) const {
  GptHalves::norm_backward(unit, half, params, saved, sum, grad_y, norm_sums(half, left), out);
}

// --- head --------------------------------------------------------------------------------------------------

void GptParts::logits(const at::Tensor& head, const at::Tensor& rows, at::Tensor& logits,
                      at::Tensor& statistics) const {
  ops_->matmul(rows, head, logits);
  ops_->softmax_part(logits, real_columns().size(), statistics);
}

void GptParts::loss(at::Tensor& logits, const at::Tensor& targets, const at::Tensor& of_all,
                    const at::Tensor& scale, HeadResult& result) const {
  ops_->softmax_gradient(logits, targets, real_columns(), of_all, scale, result.loss_sum, result.tokens);
}

// The columns of the vocabulary on this rank that are no padding; the last ranks may have padding rows.
Range GptParts::real_columns() const {
  const std::int64_t vocab = layout_.config().vocab;
  return {std::min(sizes_.vocab.begin, vocab), std::min(sizes_.vocab.end, vocab)};
}

void GptParts::head_products(const at::Tensor& head, const at::Tensor& logits, const at::Tensor& rows,
                             at::Tensor& grad_head, Write write, at::Tensor& partial) const {
  ops_->matmul_backward_input(logits, head, partial);
  ops_->matmul_backward_weight(logits, rows, grad_head, write);
}

}  // namespace sc
