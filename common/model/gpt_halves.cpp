#include "common/model/gpt_halves.h"

#include <stdexcept>
#include <string>

#include "common/base/op_profile.h"
#include "common/model/ops_profiled.h"

namespace sc {
namespace {

/// Views of BlockGrads::vectors, in the order in which the layout has a block's vectors.
struct BlockVectors {
  BlockVectors(const at::Tensor& all, const PartSizes& s) {
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

GptHalves::GptHalves(const RunShape& run, const ParamLayout& layout, const PartSizes& sizes)
    : layout_(layout), sizes_(sizes), ops_(make_ops(run.ops, run.device, run.cudnn_attention)) {
  if (OpProfiler::current() != nullptr) ops_ = make_profiled_ops(ops_);
}

at::Tensor GptHalves::view(int unit, const UnitTensors& tensors, std::size_t index) const {
  const ParamTensor& t = layout_.unit(unit).tensors[index];
  return tensors.segment(t.segment).narrow(0, t.offset, t.numel()).view(t.shape);
}

at::Tensor GptHalves::view(int unit, const UnitTensors& tensors, std::string_view name) const {
  const ParamTensor* t = layout_.find(unit, name);
  if (t == nullptr) {
    throw std::out_of_range("unit " + std::to_string(unit) + " has no tensor '" + std::string(name) + "'");
  }
  return view(unit, tensors, static_cast<std::size_t>(t - layout_.unit(unit).tensors.data()));
}

at::Tensor GptHalves::head_matrix(const UnitTensors& head_unit) const {
  return view(this->head_unit(), head_unit,
              layout_.config().tied ? std::size_t{kWte} : std::size_t{kHeadWeight});
}

at::Tensor GptHalves::by_head(const at::Tensor& t) const {
  return t.view({sizes_.B, sizes_.T, sizes_.heads, layout_.config().head_dim()});
}
at::Tensor GptHalves::packed(const at::Tensor& qkv) const {
  return qkv.view({sizes_.B, sizes_.T, 3, sizes_.heads, layout_.config().head_dim()});
}

// --- forward -----------------------------------------------------------------------------------------------

void GptHalves::norm(int unit, Half half, const UnitTensors& params, BlockSaved& saved) const {
  const HalfTensors t = tensors_of(half);
  BlockNorm& norm = saved.norm(half);
  ops_->layer_norm(saved.in(half), view(unit, params, t.norm_weight), view(unit, params, t.norm_bias),
                   norm.rows.own, norm.mean, norm.rstd);
}

// [anchor: my-rows-then-my-columns]
// Each tensor rank has some rows of the first matrix, so that its result is complete for these rows; and the
// matching columns of the second matrix, so that its result there is a summand of the whole one.
void GptHalves::first_product(int unit, Half half, const UnitTensors& params, const at::Tensor& norms,
                              BlockSaved& saved, at::Tensor& gelu) const {
  const HalfTensors t = tensors_of(half);
  const at::Tensor first = view(unit, params, t.first_weight), bias = view(unit, params, t.first_bias);
  if (half == Half::mlp) return ops_->linear_gelu(norms, first, bias, saved.fc, gelu);
  ops_->linear(norms, first, bias, saved.qkv);
}

void GptHalves::attend(int unit, BlockSaved& saved) const {
  if (attention_ != nullptr) return attention_->forward(unit, saved);
  at::Tensor att = by_head(saved.att);
  ops_->attention(unpacked(packed(saved.qkv)), /*causal=*/true, att, saved.lse);
}

// --- backward ----------------------------------------------------------------------------------------------

void GptHalves::backward_to_norm(int unit, Half half, const UnitTensors& params, const BlockSaved& saved,
                                 const at::Tensor& gradient, BlockGrads& left, at::Tensor& partial) const {
  if (half == Half::mlp && attention_ != nullptr) attention_->begin_backward(unit, saved);
  backward_of_second(unit, half, params, gradient, left);
  if (half == Half::attention) attend_backward(unit, saved, left);
  backward_of_first(unit, half, params, saved, left, partial);
}

void GptHalves::backward_of_second(int unit, Half half, const UnitTensors& params, const at::Tensor& gradient,
                                   BlockGrads& left) const {
  ops_->matmul_backward_input(gradient, view(unit, params, tensors_of(half).second_weight),
                              half == Half::attention ? left.att : left.fc);
}

void GptHalves::attend_backward(int unit, const BlockSaved& saved, BlockGrads& left) const {
  if (attention_ != nullptr) return attention_->backward(unit, saved, left);
  QueriesKeysValues grads = unpacked(packed(left.qkv));
  ops_->attention_backward(by_head(left.att), unpacked(packed(saved.qkv)), /*causal=*/true,
                           by_head(saved.att), saved.lse, grads);
}

void GptHalves::backward_of_first(int unit, Half half, const UnitTensors& params, const BlockSaved& saved,
                                  BlockGrads& left, at::Tensor& partial) const {
  BlockVectors vectors(left.vectors, sizes_);
  if (half == Half::attention) {
    ops_->column_sums(left.qkv, vectors[kQkvBias]);
  } else {
    ops_->gelu_backward(left.fc, saved.fc, vectors[kFcBias]);
  }
  ops_->matmul_backward_input(left.of_first(half), view(unit, params, tensors_of(half).first_weight),
                              partial);
}

void GptHalves::second_weights(int unit, Half half, const BlockSaved& saved, const at::Tensor& gelu,
                               const at::Tensor& gradient, const UnitTensors& grads, Write write) const {
  at::Tensor grad = view(unit, grads, tensors_of(half).second_weight);
  ops_->matmul_backward_weight(gradient, half == Half::attention ? saved.att : gelu, grad, write);
}

void GptHalves::first_weights(int unit, Half half, const at::Tensor& norms, const BlockGrads& left,
                              const UnitTensors& grads, Write write) const {
  at::Tensor grad = view(unit, grads, tensors_of(half).first_weight);
  ops_->matmul_backward_weight(left.of_first(half), norms, grad, write);
}

LayerNormSums GptHalves::norm_sums(Half half, const BlockGrads& left) const {
  const HalfTensors t = tensors_of(half);
  BlockVectors vectors(left.vectors, sizes_);
  return {vectors[t.norm_weight], vectors[t.norm_bias], vectors[t.second_bias], {}};
}

void GptHalves::norm_backward(int unit, Half half, const UnitTensors& params, const BlockSaved& saved,
                              const at::Tensor& sum, const at::Tensor& grad_y, LayerNormSums sums,
                              at::Tensor& out) const {
  const BlockNorm& norm = saved.norm(half);
  ops_->layer_norm_backward(sum, saved.in(half), norm.mean, norm.rstd,
                            view(unit, params, tensors_of(half).norm_weight), grad_y, out, sums);
}

void GptHalves::vectors(int unit, const BlockGrads& left, const UnitTensors& grads, Write write) const {
  BlockVectors sums(left.vectors, sizes_);
  std::vector<StoredSums> stored;
  for (const std::size_t tensor : BlockVectors::kTensors)
    stored.push_back({sums[tensor], view(unit, grads, tensor)});
  ops_->store_sums(stored, write);
}

// A run writes the gradient of its own positions; of several none may overwrite another's.
void GptHalves::positions_backward(const at::Tensor& rows, const UnitTensors& grads0, Write write) const {
  const at::Tensor wpe = view(0, grads0, kWpe);
  if (sizes_.starts != std::vector<std::int64_t>{0} && write == Write::overwrite) {
    wpe.zero_();
    write = Write::accumulate;
  }
  for_each_run([&](Range here, Range of_run, Range positions) {
    at::Tensor of_positions = part(wpe, positions);
    ops_->positions_backward(part(rows, here), of_run, sizes_.T, of_positions, write);
  });
}

// --- the head's norm ---------------------------------------------------------------------------------------

void GptHalves::head_norm(const UnitTensors& ln_f, const at::Tensor& x, Workspace& ws) const {
  const int last = layout_.last_unit();
  ops_->layer_norm(x, view(last, ln_f, kLnfWeight), view(last, ln_f, kLnfBias), ws.head.rows.own,
                   ws.head.mean, ws.head.rstd);
}

void GptHalves::head_norm_backward(const UnitTensors& ln_f, const at::Tensor& x, const at::Tensor& sum,
                                   const UnitTensors& grads, Write write, Workspace& ws,
                                   at::Tensor& out) const {
  const int last = layout_.last_unit();
  const at::Tensor& vectors = ws.grads.vectors;
  LayerNormSums sums{vectors.narrow(0, 0, sizes_.d), vectors.narrow(0, sizes_.d, sizes_.d), {}, {}};
  ops_->layer_norm_backward(sum, x, ws.head.mean, ws.head.rstd, view(last, ln_f, kLnfWeight), {}, out, sums);
  const StoredSums stored[] = {{sums.weight, view(last, grads, kLnfWeight)},
                               {sums.bias, view(last, grads, kLnfBias)}};
  ops_->store_sums(stored, write);
}

}  // namespace sc
