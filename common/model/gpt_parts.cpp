#include "common/model/gpt_parts.h"

#include <c10/core/InferenceMode.h>

#include "common/base/op_profile.h"
#include "common/model/block_tensors.h"
#include "common/model/ops_profiled.h"

namespace sc {
namespace {

/// Where a half's tensors stand in their block.
struct HalfTensors {
  std::size_t norm_weight, norm_bias, first_weight, first_bias, second_weight, second_bias;
};
constexpr HalfTensors tensors_of(Half half) {
  if (half == Half::attention) return {kLn1Weight, kLn1Bias, kQkvWeight, kQkvBias, kProjWeight, kProjBias};
  return {kLn2Weight, kLn2Bias, kFcWeight, kFcBias, kOutWeight, kOutBias};
}

/// The parts of PartGrads::vectors, in the layout's order of a block's vectors.
struct PartVectors {
  PartVectors(const at::Tensor& all, const PartSizes& s) {
    const std::int64_t sizes[] = {s.d, s.d, 3 * s.att, s.d, s.d, s.d, s.hidden, s.d};
    std::int64_t begin = 0;
    for (std::size_t i = 0; i < of.size(); ++i) {
      of[i] = all.narrow(0, begin, sizes[i]);
      begin += sizes[i];
    }
  }
  static constexpr std::array<std::size_t, 8> kTensors = {kLn1Weight, kLn1Bias, kQkvBias, kProjBias,
                                                          kLn2Weight, kLn2Bias, kFcBias,  kOutBias};
  at::Tensor& operator[](std::size_t tensor) {
    std::size_t i = 0;
    while (kTensors[i] != tensor) ++i;
    return of[i];
  }
  std::array<at::Tensor, 8> of;
};

}  // namespace

GptParts::GptParts(const GptShape& shape, const ParamLayout& layout, const PartSizes& sizes)
    : layout_(layout), sizes_(sizes), ops_(make_ops(shape.ops, shape.device, shape.cudnn_attention)) {
  if (OpProfiler::current() != nullptr) ops_ = make_profiled_ops(ops_);
}

at::Tensor GptParts::view(int unit, const UnitTensors& tensors, std::size_t index) const {
  const ParamTensor& t = layout_.unit(unit).tensors[index];
  return tensors.segment(t.segment).narrow(0, t.offset, t.numel()).view(t.shape);
}

at::Tensor GptParts::by_head(const at::Tensor& t) const {
  return t.view({sizes_.B, sizes_.T, sizes_.heads, layout_.config().head_dim()});
}
at::Tensor GptParts::packed(const at::Tensor& qkv) const {
  return qkv.view({sizes_.B, sizes_.T, 3, sizes_.heads, layout_.config().head_dim()});
}

at::Tensor GptParts::head_matrix(const UnitTensors& head_unit) const {
  return view(this->head_unit(), head_unit,
              layout_.config().tied ? std::size_t{kWte} : std::size_t{kHeadWeight});
}

// --- embedding ---------------------------------------------------------------------------------------------

void GptParts::embed(const UnitTensors& params0, const at::Tensor& tokens, at::Tensor& partial) const {
  const c10::InferenceMode guard;
  ops_->embed_part(tokens, view(0, params0, kWte), sizes_.vocab, partial);
}

void GptParts::positions(const UnitTensors& params0, const at::Tensor& sum, at::Tensor& x) const {
  const c10::InferenceMode guard;
  ops_->add_positions(sum, view(0, params0, kWpe), sizes_.tokens, sizes_.T, x);
}

void GptParts::embed_backward(const at::Tensor& tokens, const at::Tensor& gradient, const UnitTensors& grads0,
                              Write write) const {
  const c10::InferenceMode guard;
  at::Tensor wte = view(0, grads0, kWte);
  ops_->embed_part_backward(tokens, gradient, sizes_.vocab, wte, write);
}

void GptParts::positions_backward(const at::Tensor& rows, const UnitTensors& grads0, Write write) const {
  const c10::InferenceMode guard;
  at::Tensor wpe = view(0, grads0, kWpe);
  ops_->positions_backward(rows, sizes_.tokens, sizes_.T, wpe, write);
}

// --- a block's halves, forward -----------------------------------------------------------------------------

void GptParts::norm(int unit, Half half, const UnitTensors& params, PartSaved& saved) const {
  const c10::InferenceMode guard;
  const HalfTensors t = tensors_of(half);
  PartNorm& norm = saved.norm(half);
  ops_->layer_norm(half == Half::attention ? saved.x : saved.mid, view(unit, params, t.norm_weight),
                   view(unit, params, t.norm_bias), norm.rows.own, norm.mean, norm.rstd);
}

// [anchor: my-rows-then-my-columns]
// The first matrix has my rows of it, so that its result is mine alone and complete; the second one has the
// columns that belong to it, so that its result is a summand of everybody's.
void GptParts::first_product(int unit, Half half, const UnitTensors& params, const at::Tensor& norms,
                             PartSaved& saved, at::Tensor& gelu) const {
  const c10::InferenceMode guard;
  const HalfTensors t = tensors_of(half);
  const at::Tensor first = view(unit, params, t.first_weight), bias = view(unit, params, t.first_bias);
  if (half == Half::mlp) return ops_->linear_gelu(norms, first, bias, saved.fc, gelu);
  ops_->linear(norms, first, bias, saved.qkv);
}

void GptParts::second_product(int unit, Half half, const UnitTensors& params, PartSaved& saved,
                              const at::Tensor& gelu, at::Tensor& partial) const {
  const c10::InferenceMode guard;
  const at::Tensor second = view(unit, params, tensors_of(half).second_weight);
  if (half == Half::mlp) return ops_->matmul(gelu, second, partial);
  at::Tensor att = by_head(saved.att);
  ops_->attention(packed(saved.qkv), att, saved.lse);
  ops_->matmul(saved.att, second, partial);
}

void GptParts::gelu_again(const PartSaved& saved, at::Tensor& gelu) const {
  const c10::InferenceMode guard;
  ops_->gelu(saved.fc, gelu);
}

// [anchor: bias-once]
// The second matrix's bias belongs to the sum, not to a summand: added by every rank it would count t times.
void GptParts::add_norm(int unit, Half half, std::span<const UnitTensors> params, const at::Tensor& in,
                        const at::Tensor& sum, at::Tensor& out, PartNorm* norm) const {
  const c10::InferenceMode guard;
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

// --- a block's halves, backward ----------------------------------------------------------------------------

void GptParts::backward_to_norm(int unit, Half half, const UnitTensors& params, const PartSaved& saved,
                                const at::Tensor& gradient, PartGrads& left, at::Tensor& partial) const {
  const c10::InferenceMode guard;
  const HalfTensors t = tensors_of(half);
  const at::Tensor first = view(unit, params, t.first_weight), second = view(unit, params, t.second_weight);
  PartVectors vectors(left.vectors, sizes_);
  if (half == Half::attention) {
    at::Tensor grad_qkv = packed(left.qkv);
    ops_->matmul_backward_input(gradient, second, left.att);
    ops_->attention_backward(by_head(left.att), packed(saved.qkv), by_head(saved.att), saved.lse, grad_qkv,
                             vectors[kQkvBias]);
    ops_->matmul_backward_input(left.qkv, first, partial);
  } else {
    ops_->matmul_backward_input(gradient, second, left.fc);
    ops_->gelu_backward(left.fc, saved.fc, vectors[kFcBias]);
    ops_->matmul_backward_input(left.fc, first, partial);
  }
}

void GptParts::second_weights(int unit, Half half, const PartSaved& saved, const at::Tensor& gelu,
                              const at::Tensor& gradient, const UnitTensors& grads, Write write) const {
  const c10::InferenceMode guard;
  at::Tensor grad = view(unit, grads, tensors_of(half).second_weight);
  ops_->matmul_backward_weight(gradient, half == Half::attention ? saved.att : gelu, grad, write);
}

void GptParts::first_weights(int unit, Half half, const at::Tensor& norms, const PartGrads& left,
                             const UnitTensors& grads, Write write) const {
  const c10::InferenceMode guard;
  at::Tensor grad = view(unit, grads, tensors_of(half).first_weight);
  ops_->matmul_backward_weight(half == Half::attention ? left.qkv : left.fc, norms, grad, write);
}

void GptParts::norm_backward(int unit, Half half, const UnitTensors& params, const PartSaved& saved,
                             const at::Tensor& sum, const at::Tensor& grad_y, PartGrads& left,
                             at::Tensor& out) const {
  const c10::InferenceMode guard;
  const HalfTensors t = tensors_of(half);
  const PartNorm& norm = saved.norm(half);
  PartVectors vectors(left.vectors, sizes_);
  // The second bias was added to what grad_y is the gradient of.
  LayerNormSums sums{vectors[t.norm_weight], vectors[t.norm_bias], vectors[t.second_bias], {}};
  ops_->layer_norm_backward(sum, half == Half::attention ? saved.x : saved.mid, norm.mean, norm.rstd,
                            view(unit, params, t.norm_weight), grad_y, out, sums);
}

void GptParts::vectors(int unit, const PartGrads& left, const UnitTensors& grads, Write write) const {
  const c10::InferenceMode guard;
  PartVectors sums(left.vectors, sizes_);
  std::vector<StoredSums> stored;
  for (const std::size_t tensor : PartVectors::kTensors)
    stored.push_back({sums[tensor], view(unit, grads, tensor)});
  ops_->store_sums(stored, write);
}

// --- head --------------------------------------------------------------------------------------------------

void GptParts::head_norm(const UnitTensors& ln_f, const at::Tensor& x, PartWork& work) const {
  const c10::InferenceMode guard;
  const int last = layout_.last_unit();
  ops_->layer_norm(x, view(last, ln_f, kLnfWeight), view(last, ln_f, kLnfBias), work.head.rows.own,
                   work.head.mean, work.head.rstd);
}

void GptParts::logits(const at::Tensor& head, const at::Tensor& rows, at::Tensor& logits,
                      at::Tensor& statistics) const {
  const c10::InferenceMode guard;
  ops_->matmul(rows, head, logits);
  ops_->softmax_part(logits, real_columns().size(), statistics);
}

void GptParts::loss(at::Tensor& logits, const at::Tensor& targets, const at::Tensor& of_all,
                    const at::Tensor& scale, HeadResult& result) const {
  const c10::InferenceMode guard;
  ops_->softmax_gradient(logits, targets, real_columns(), of_all, scale, result.loss_sum, result.tokens);
}

// Padding rows of the vocabulary are nobody's.
Range GptParts::real_columns() const {
  const std::int64_t vocab = layout_.config().vocab;
  return {std::min(sizes_.vocab.begin, vocab), std::min(sizes_.vocab.end, vocab)};
}

void GptParts::head_products(const at::Tensor& head, const at::Tensor& logits, const at::Tensor& rows,
                             at::Tensor& grad_head, Write write, at::Tensor& partial) const {
  const c10::InferenceMode guard;
  ops_->matmul_backward_input(logits, head, partial);
  ops_->matmul_backward_weight(logits, rows, grad_head, write);
}

void GptParts::head_norm_backward(const UnitTensors& ln_f, const at::Tensor& x, const at::Tensor& sum,
                                  const UnitTensors& grads, Write write, PartWork& work,
                                  at::Tensor& out) const {
  const c10::InferenceMode guard;
  const int last = layout_.last_unit();
  const at::Tensor weight = work.grads.vectors.narrow(0, 0, sizes_.d),
                   bias = work.grads.vectors.narrow(0, sizes_.d, sizes_.d);
  LayerNormSums sums{weight, bias, {}, {}};
  ops_->layer_norm_backward(sum, x, work.head.mean, work.head.rstd, view(last, ln_f, kLnfWeight), {}, out,
                            sums);
  const StoredSums vectors[] = {{weight, view(last, grads, kLnfWeight)}, {bias, view(last, grads, kLnfBias)}};
  ops_->store_sums(vectors, write);
}

}  // namespace sc
