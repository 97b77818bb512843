// The buffers of a Gpt. activation_plan.cpp predicts their bytes by formula, one name a formula.
#include <algorithm>

#include "common/model/gpt.h"

namespace sc {

BlockSaved Gpt::allocate_block(Ledger& ledger, Purpose purpose, const char* name, bool with_gelu) const {
  const std::int64_t b = shape_.batch, t = shape_.sequence, d = shape_.config.width,
                     heads = shape_.config.heads;
  const auto slab = [&](std::int64_t columns) {
    return ledger.allocate(purpose, name, {b, t, columns}, shape_.dtype);
  };
  const auto statistic = [&] { return ledger.allocate(purpose, name, {b * t}, DType::f32); };
  BlockSaved s;
  s.ln1_out = slab(d);
  s.ln1_mean = statistic();
  s.ln1_rstd = statistic();
  s.qkv = slab(3 * d);
  s.lse = ledger.allocate(purpose, name, {b, heads, t}, DType::f32);
  s.att = slab(d);
  s.mid = slab(d);
  s.ln2_out = slab(d);
  s.ln2_mean = statistic();
  s.ln2_rstd = statistic();
  s.fc = slab(4 * d);
  if (with_gelu) s.gelu = slab(4 * d);
  return s;
}

BlockSaved Gpt::allocate_saved(Ledger& ledger) const {
  if (shape_.activations == Activations::recompute) return {};
  return allocate_block(ledger, Purpose::activations, "saved", shape_.activations == Activations::keep);
}

BlockGrads Gpt::allocate_block_grads(Ledger& ledger, const char* name) const {
  const std::int64_t d = shape_.config.width;
  const auto slab = [&](std::int64_t columns) {
    return ledger.allocate(Purpose::workspace, name, {shape_.batch, shape_.sequence, columns}, shape_.dtype);
  };
  BlockGrads grads;
  grads.grad_fc = slab(4 * d);
  grads.grad_mid = slab(d);
  grads.grad_qkv = slab(3 * d);
  grads.grad_vectors = ledger.allocate(Purpose::workspace, name, {13 * d}, DType::f32);
  return grads;
}

Workspace Gpt::allocate_workspace(Ledger& ledger, bool with_head) const {
  constexpr const char* kName = "workspace";
  const GptConfig& c = shape_.config;
  const std::int64_t b = shape_.batch, t = shape_.sequence, d = c.width;
  const auto slab = [&](std::int64_t columns) {
    return ledger.allocate(Purpose::workspace, kName, {b, t, columns}, shape_.dtype);
  };
  const auto statistic = [&] { return ledger.allocate(Purpose::workspace, kName, {b * t}, DType::f32); };
  Workspace ws;
  if (shape_.activations == Activations::recompute)
    ws.recomputed = allocate_block(ledger, Purpose::workspace, kName, true);
  if (shape_.activations == Activations::recompute_gelu) ws.gelu = slab(4 * d);
  ws.grads = allocate_block_grads(ledger, kName);
  ws.scratch = slab(d);
  if (!with_head) return ws;
  ws.head_in = slab(d);
  ws.head_mean = statistic();
  ws.head_rstd = statistic();
  const std::int64_t chunk = std::min(shape_.head_chunk, b * t);
  ws.logits = ledger.allocate(Purpose::workspace, kName, {chunk, c.vocab_padded()}, shape_.dtype);
  return ws;
}

}  // namespace sc
