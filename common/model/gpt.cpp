#include "common/model/gpt.h"

#include <algorithm>
#include <string>
#include <utility>

#include "common/base/check.h"

namespace sc {
namespace {

at::Tensor rows(const at::Tensor& t) { return t.view({-1, t.size(-1)}); }

}  // namespace

Gpt::Gpt(const RunShape& run, const ParamLayout& layout)
    : GptHalves(run, layout, PartSizes(run)), shape_(run) {
  const std::int64_t context = layout.config().context;
  if (sizes_.T <= context) return;
  throw InputError(
      ExitCode::usage, "batch.sequence",
      std::to_string(sizes_.T) + " tokens a row, but the model has " + std::to_string(context) + " positions",
      "a batch.sequence of at most model.context");
}

void Gpt::embed(const UnitTensors& params0, const at::Tensor& tokens, at::Tensor& x_out) const {
  const std::int64_t run = sizes_.run();
  for_each_run([&](Range here, Range /*of_run*/, Range positions) {
    at::Tensor x = part(rows(x_out), here).view({-1, run, sizes_.d});
    ops_->embed(part(tokens.view({-1}), here).view({-1, run}), view(0, params0, kWte),
                part(view(0, params0, kWpe), positions), x);
  });
}

void Gpt::embed_backward(const at::Tensor& tokens, const at::Tensor& grad_x, const UnitTensors& grads0,
                         Write wte, Write wpe) const {
  at::Tensor grad_wte = view(0, grads0, kWte);
  ops_->embed_part_backward(tokens, rows(grad_x), sizes_.vocab, grad_wte, wte);
  positions_backward(rows(grad_x), grads0, wpe);
}

BlockSaved& Gpt::used(BlockSaved& saved, Workspace& ws) const {
  if (shape_.workload.activations != Activations::recompute) return saved;
  ws.recomputed.x = saved.x;
  return ws.recomputed;
}
at::Tensor& Gpt::gelu(BlockSaved& saved, Workspace& ws) const {
  return shape_.workload.activations == Activations::recompute_gelu ? ws.recomputed.gelu
                                                                    : used(saved, ws).gelu;
}

// out = residual + in w^T + bias. One device has the whole product, so the same call adds the residual.
void Gpt::second_product(int unit, Half half, const UnitTensors& params, const at::Tensor& in,
                         const at::Tensor& residual, at::Tensor& out) const {
  const HalfTensors t = tensors_of(half);
  ops_->linear_residual(in, view(unit, params, t.second_weight), view(unit, params, t.second_bias), residual,
                        out);
}

// A block up to its last matrix: s.x -> norm -> s.qkv -> s.att -> s.mid -> norm -> s.fc -> gelu.
void Gpt::forward_to_gelu(int unit, const UnitTensors& params, BlockSaved& s, at::Tensor& gelu) const {
  norm(unit, Half::attention, params, s);
  first_product(unit, Half::attention, params, s.norm(Half::attention).rows.all, s, gelu);
  attend(unit, s);
  second_product(unit, Half::attention, params, s.att, s.x, s.mid);
  norm(unit, Half::mlp, params, s);
  first_product(unit, Half::mlp, params, s.norm(Half::mlp).rows.all, s, gelu);
}

void Gpt::forward_block(int unit, const UnitTensors& params, const at::Tensor& x, BlockSaved& saved,
                        Workspace& ws, at::Tensor& y_out) const {
  saved.x = rows(x);
  BlockSaved& s = used(saved, ws);
  at::Tensor y = rows(y_out);
  forward_to_gelu(unit, params, s, gelu(saved, ws));
  second_product(unit, Half::mlp, params, gelu(saved, ws), s.mid, y);
}

void Gpt::recompute(int unit, const UnitTensors& params, BlockSaved& saved, Workspace& ws) const {
  const Activations mode = shape_.workload.activations;
  if (mode == Activations::recompute) forward_to_gelu(unit, params, used(saved, ws), gelu(saved, ws));
  if (mode == Activations::recompute_gelu) gelu_again(saved, gelu(saved, ws));
}

void Gpt::backward_input(int unit, const UnitTensors& params, BlockSaved& saved, const at::Tensor& grad_y,
                         Workspace& ws, BlockGrads& left, at::Tensor& grad_x_out) const {
  recompute(unit, params, saved, ws);
  const BlockSaved& s = used(saved, ws);
  at::Tensor grad_x = rows(grad_x_out);
  left.grad_y = rows(grad_y);
  left.att = ws.partial;
  // The norm between the halves sums the columns of what it reads and writes: both second matrices' bias
  // gradients.
  LayerNormSums of_attention = norm_sums(Half::attention, left), of_mlp = norm_sums(Half::mlp, left);
  std::swap(of_mlp.grad_x, of_attention.residual);

  backward_to_norm(unit, Half::mlp, params, s, left.grad_y, left, ws.partial);
  norm_backward(unit, Half::mlp, params, s, ws.partial, left.grad_y, of_mlp, left.mid);
  backward_to_norm(unit, Half::attention, params, s, left.mid, left, ws.partial);
  norm_backward(unit, Half::attention, params, s, ws.partial, left.mid, of_attention, grad_x);
}

void Gpt::backward_weights(int unit, BlockSaved& saved, Workspace& ws, const BlockGrads& left,
                           const UnitTensors& grads, Write write) const {
  const BlockSaved& s = used(saved, ws);
  for (const Half half : {Half::mlp, Half::attention}) {
    const at::Tensor& gradient = half == Half::mlp ? left.grad_y : left.mid;
    second_weights(unit, half, s, gelu(saved, ws), gradient, grads, write);
    first_weights(unit, half, s.norm(half).rows.all, left, grads, write);
  }
  vectors(unit, left, grads, write);
}

void Gpt::head(const at::Tensor& head_params, const UnitTensors& ln_f, const at::Tensor& x,
               const at::Tensor& targets, const at::Tensor& scale, at::Tensor& grad_x_out,
               at::Tensor& grad_head, const UnitTensors& grad_ln_f, Write write, Workspace& ws,
               HeadResult& result) const {
  head_norm(ln_f, rows(x), ws);
  const at::Tensor flat_targets = targets.view({-1});
  for (std::int64_t begin = 0; begin < sizes_.N; begin += sizes_.chunk) {
    const std::int64_t size = std::min(sizes_.chunk, sizes_.N - begin);
    const at::Tensor in = ws.head.rows.all.narrow(0, begin, size);
    at::Tensor logits = ws.logits.narrow(0, 0, size), grad_in = ws.partial.narrow(0, begin, size);
    ops_->matmul(in, head_params, logits);
    ops_->cross_entropy(logits, flat_targets.narrow(0, begin, size), layout_.config().vocab, scale,
                        result.loss_sum, result.tokens);  // logits now hold their gradient
    if (!scale.defined()) continue;
    ops_->matmul_backward_input(logits, head_params, grad_in);
    ops_->matmul_backward_weight(logits, in, grad_head, begin == 0 ? write : Write::accumulate);
  }
  if (!scale.defined()) return;
  at::Tensor grad_x = rows(grad_x_out);
  head_norm_backward(ln_f, rows(x), ws.partial, grad_ln_f, write, ws, grad_x);
}

void Gpt::head_loss(const at::Tensor& head_params, const UnitTensors& ln_f, const at::Tensor& x,
                    const at::Tensor& targets, Workspace& ws, HeadResult& result) const {
  at::Tensor none;
  head(head_params, ln_f, x, targets, /*scale=*/{}, none, none, {}, Write::overwrite, ws, result);
}

}  // namespace sc
