#include "common/model/gpt.h"

#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <stdexcept>
#include <string>

#include "common/base/check.h"
#include "common/base/op_profile.h"
#include "common/model/block_tensors.h"
#include "common/model/ops_profiled.h"

namespace sc {
namespace {

at::Tensor rows(const at::Tensor& t) { return t.view({-1, t.size(-1)}); }

// The parts of BlockGrads::grad_vectors, [13 d], in the layout's order of a block's vectors.
struct BlockVectors {
  BlockVectors(const at::Tensor& all, std::int64_t d) {
    std::int64_t begin = 0;
    const auto next = [&](std::int64_t size) {
      begin += size;
      return all.narrow(0, begin - size, size);
    };
    ln1_weight = next(d), ln1_bias = next(d), qkv_bias = next(3 * d), proj_bias = next(d);
    ln2_weight = next(d), ln2_bias = next(d), fc_bias = next(4 * d), out_bias = next(d);
  }
  at::Tensor ln1_weight, ln1_bias, qkv_bias, proj_bias, ln2_weight, ln2_bias, fc_bias, out_bias;
};

}  // namespace

GptShape shape_of(const RunShape& run) {
  const Workload& w = run.workload;
  return {.config = w.model,
          .batch = w.batch.micro,
          .sequence = w.batch.sequence,
          .head_chunk = w.head_chunk,
          .dtype = w.precision.dtype,
          .activations = w.activations,
          .ops = run.ops,
          .device = run.device,
          .threads = run.threads,
          .cudnn_attention = run.cudnn_attention};
}

Gpt::Gpt(const GptShape& shape, const ParamLayout& layout)
    : shape_(shape), layout_(layout), ops_(make_ops(shape.ops, shape.device, shape.cudnn_attention)) {
  if (OpProfiler::current() != nullptr) ops_ = make_profiled_ops(ops_);
  if (shape.sequence > shape.config.context) {
    throw InputError(ExitCode::usage, "batch.sequence",
                     std::to_string(shape.sequence) + " tokens a row, but the model has " +
                         std::to_string(shape.config.context) + " positions",
                     "a batch.sequence of at most model.context");
  }
}

at::Tensor Gpt::view(int unit, const UnitTensors& tensors, std::size_t index) const {
  const ParamTensor& t = layout_.unit(unit).tensors[index];
  const at::Tensor flat = tensors.segment(t.segment).narrow(0, t.offset, t.numel());
  return t.shape.size() == 1 ? flat : flat.view(t.shape);
}

at::Tensor Gpt::view(int unit, const UnitTensors& tensors, std::string_view name) const {
  const ParamTensor* t = layout_.find(unit, name);
  if (t == nullptr) {
    throw std::out_of_range("unit " + std::to_string(unit) + " has no tensor '" + std::string(name) + "'");
  }
  return view(unit, tensors, static_cast<std::size_t>(t - layout_.unit(unit).tensors.data()));
}

int Gpt::head_unit() const { return shape_.config.tied ? 0 : layout_.last_unit(); }

at::Tensor Gpt::head_matrix(const UnitTensors& head_unit) const {
  return view(this->head_unit(), head_unit,
              shape_.config.tied ? std::size_t{kWte} : std::size_t{kHeadWeight});
}

void Gpt::embed(const UnitTensors& params0, const at::Tensor& tokens, at::Tensor& x_out) const {
  const c10::InferenceMode guard;
  ops_->embed(tokens, view(0, params0, kWte), view(0, params0, kWpe), x_out);
}

void Gpt::embed_backward(const at::Tensor& tokens, const at::Tensor& grad_x, const UnitTensors& grads0,
                         Write wte, Write wpe) const {
  const c10::InferenceMode guard;
  at::Tensor grad_wte = view(0, grads0, kWte), grad_wpe = view(0, grads0, kWpe);
  ops_->embed_backward(tokens, grad_x, grad_wte, wte, grad_wpe, wpe);
}

// The block up to its last matrix: x -> s.ln1_out -> s.qkv -> s.att -> s.mid -> s.ln2_out -> s.fc -> gelu.
void Gpt::forward_to_gelu(int unit, const UnitTensors& params, const at::Tensor& x, BlockSaved& s,
                          at::Tensor& gelu) const {
  const auto p = [&](BlockTensor t) { return view(unit, params, t); };
  const GptConfig& c = shape_.config;
  const std::int64_t b = shape_.batch, t = shape_.sequence;
  at::Tensor ln1 = rows(s.ln1_out), qkv = rows(s.qkv), mid = rows(s.mid), ln2 = rows(s.ln2_out),
             fc = rows(s.fc);
  at::Tensor att = s.att.view({b, t, c.heads, c.head_dim()}), gelu_rows = rows(gelu);

  ops_->layer_norm(rows(x), p(kLn1Weight), p(kLn1Bias), ln1, s.ln1_mean, s.ln1_rstd);
  ops_->linear(ln1, p(kQkvWeight), p(kQkvBias), qkv);
  ops_->attention(s.qkv.view({b, t, 3, c.heads, c.head_dim()}), att, s.lse);
  ops_->linear_residual(rows(s.att), p(kProjWeight), p(kProjBias), rows(x), mid);
  ops_->layer_norm(mid, p(kLn2Weight), p(kLn2Bias), ln2, s.ln2_mean, s.ln2_rstd);
  ops_->linear_gelu(ln2, p(kFcWeight), p(kFcBias), fc, gelu_rows);
}

void Gpt::forward_block(int unit, const UnitTensors& params, const at::Tensor& x, BlockSaved& saved,
                        Workspace& ws, at::Tensor& y_out) const {
  const c10::InferenceMode guard;
  saved.x = x;
  BlockSaved& s = shape_.activations == Activations::recompute ? ws.recomputed : saved;
  at::Tensor& gelu = shape_.activations == Activations::recompute_gelu ? ws.gelu : s.gelu;
  forward_to_gelu(unit, params, x, s, gelu);
  at::Tensor y = rows(y_out);
  ops_->linear_residual(rows(gelu), view(unit, params, kOutWeight), view(unit, params, kOutBias), rows(s.mid),
                        y);
}

void Gpt::recompute(int unit, const UnitTensors& params, const BlockSaved& saved, Workspace& ws) const {
  const c10::InferenceMode guard;
  if (shape_.activations == Activations::recompute)
    forward_to_gelu(unit, params, saved.x, ws.recomputed, ws.recomputed.gelu);
  if (shape_.activations == Activations::recompute_gelu) ops_->gelu(saved.fc, ws.gelu);
}

void Gpt::backward_input(int unit, const UnitTensors& params, BlockSaved& saved, const at::Tensor& grad_y,
                         Workspace& ws, BlockGrads& left, at::Tensor& grad_x_out) const {
  const c10::InferenceMode guard;
  const auto p = [&](BlockTensor t) { return view(unit, params, t); };
  const GptConfig& c = shape_.config;
  const std::int64_t b = shape_.batch, t = shape_.sequence;
  recompute(unit, params, saved, ws);
  const BlockSaved& s = shape_.activations == Activations::recompute ? ws.recomputed : saved;
  left.grad_y = grad_y;
  at::Tensor grad_fc = rows(left.grad_fc), grad_mid = rows(left.grad_mid), grad_x = rows(grad_x_out);
  at::Tensor scratch = rows(ws.scratch), grad_qkv = left.grad_qkv.view({b, t, 3, c.heads, c.head_dim()});
  BlockVectors sums(left.grad_vectors, c.width);

  ops_->matmul_backward_input(rows(grad_y), p(kOutWeight), grad_fc);
  ops_->gelu_backward(grad_fc, rows(s.fc), sums.fc_bias);
  ops_->matmul_backward_input(grad_fc, p(kFcWeight), scratch);
  LayerNormSums ln2{sums.ln2_weight, sums.ln2_bias, sums.out_bias, sums.proj_bias};
  ops_->layer_norm_backward(scratch, rows(s.mid), s.ln2_mean, s.ln2_rstd, p(kLn2Weight), rows(grad_y),
                            grad_mid, ln2);

  ops_->matmul_backward_input(grad_mid, p(kProjWeight), scratch);
  const std::initializer_list<std::int64_t> heads = {b, t, c.heads, c.head_dim()};
  ops_->attention_backward(ws.scratch.view(heads), s.qkv.view(grad_qkv.sizes()), s.att.view(heads), s.lse,
                           grad_qkv, sums.qkv_bias);
  ops_->matmul_backward_input(rows(left.grad_qkv), p(kQkvWeight), scratch);
  LayerNormSums ln1{sums.ln1_weight, sums.ln1_bias, {}, {}};
  ops_->layer_norm_backward(scratch, rows(saved.x), s.ln1_mean, s.ln1_rstd, p(kLn1Weight), grad_mid, grad_x,
                            ln1);
}

void Gpt::backward_weights(int unit, const BlockSaved& saved, const Workspace& ws, const BlockGrads& left,
                           const UnitTensors& grads, Write write) const {
  const c10::InferenceMode guard;
  const BlockSaved& s = shape_.activations == Activations::recompute ? ws.recomputed : saved;
  const at::Tensor& gelu = shape_.activations == Activations::recompute_gelu ? ws.gelu : s.gelu;
  const auto matrix = [&](BlockTensor t, const at::Tensor& grad_out, const at::Tensor& in) {
    at::Tensor grad = view(unit, grads, t);
    ops_->matmul_backward_weight(rows(grad_out), rows(in), grad, write);
  };
  matrix(kOutWeight, left.grad_y, gelu);
  matrix(kFcWeight, left.grad_fc, s.ln2_out);
  matrix(kProjWeight, left.grad_mid, s.att);
  matrix(kQkvWeight, left.grad_qkv, s.ln1_out);

  const auto vector = [&](BlockTensor t, const at::Tensor& sums) {
    return StoredSums{sums, view(unit, grads, t)};
  };
  const BlockVectors sums(left.grad_vectors, shape_.config.width);
  const StoredSums vectors[] = {vector(kLn1Weight, sums.ln1_weight), vector(kLn1Bias, sums.ln1_bias),
                                vector(kQkvBias, sums.qkv_bias),     vector(kProjBias, sums.proj_bias),
                                vector(kLn2Weight, sums.ln2_weight), vector(kLn2Bias, sums.ln2_bias),
                                vector(kFcBias, sums.fc_bias),       vector(kOutBias, sums.out_bias)};
  ops_->store_sums(vectors, write);
}

void Gpt::head_norm(const UnitTensors& ln_f, const at::Tensor& x, Workspace& ws) const {
  const int last = layout_.last_unit();
  at::Tensor out = rows(ws.head_in);
  ops_->layer_norm(rows(x), view(last, ln_f, kLnfWeight), view(last, ln_f, kLnfBias), out, ws.head_mean,
                   ws.head_rstd);
}

void Gpt::head(const at::Tensor& head_params, const UnitTensors& ln_f, const at::Tensor& x,
               const at::Tensor& targets, const at::Tensor& scale, at::Tensor& grad_x_out,
               at::Tensor& grad_head, const UnitTensors& grad_ln_f, Write write, Workspace& ws,
               HeadResult& result) const {
  const c10::InferenceMode guard;
  head_norm(ln_f, x, ws);
  const at::Tensor in = rows(ws.head_in), flat_targets = targets.view({-1});
  at::Tensor grad_in = rows(ws.scratch);
  const std::int64_t tokens = in.size(0), chunk = ws.logits.size(0);
  for (std::int64_t begin = 0; begin < tokens; begin += chunk) {
    const std::int64_t size = std::min(chunk, tokens - begin);
    const at::Tensor in_rows = in.narrow(0, begin, size);
    at::Tensor logits = ws.logits.narrow(0, 0, size), grad_rows = grad_in.narrow(0, begin, size);
    ops_->matmul(in_rows, head_params, logits);
    ops_->cross_entropy(logits, flat_targets.narrow(0, begin, size), shape_.config.vocab, scale,
                        result.loss_sum,
                        result.tokens);  // logits are their gradient now
    ops_->matmul_backward_input(logits, head_params, grad_rows);
    ops_->matmul_backward_weight(logits, in_rows, grad_head, begin == 0 ? write : Write::accumulate);
  }
  const int last = layout_.last_unit();
  const std::int64_t d = shape_.config.width;
  at::Tensor grad_x = rows(grad_x_out);
  LayerNormSums sums{ws.grads.grad_vectors.narrow(0, 0, d), ws.grads.grad_vectors.narrow(0, d, d), {}, {}};
  ops_->layer_norm_backward(grad_in, rows(x), ws.head_mean, ws.head_rstd, view(last, ln_f, kLnfWeight), {},
                            grad_x, sums);
  const StoredSums vectors[] = {{sums.weight, view(last, grad_ln_f, kLnfWeight)},
                                {sums.bias, view(last, grad_ln_f, kLnfBias)}};
  ops_->store_sums(vectors, write);
}

void Gpt::head_loss(const at::Tensor& head_params, const UnitTensors& ln_f, const at::Tensor& x,
                    const at::Tensor& targets, Workspace& ws, HeadResult& result) const {
  const c10::InferenceMode guard;
  head_norm(ln_f, x, ws);
  const at::Tensor in = rows(ws.head_in), flat_targets = targets.view({-1});
  const std::int64_t tokens = in.size(0), chunk = ws.logits.size(0);
  for (std::int64_t begin = 0; begin < tokens; begin += chunk) {
    const std::int64_t size = std::min(chunk, tokens - begin);
    at::Tensor logits = ws.logits.narrow(0, 0, size);
    ops_->matmul(in.narrow(0, begin, size), head_params, logits);
    ops_->cross_entropy(logits, flat_targets.narrow(0, begin, size), shape_.config.vocab, /*scale=*/{},
                        result.loss_sum, result.tokens);
  }
}

}  // namespace sc
