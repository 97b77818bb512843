// The buffers of a Gpt. Their bytes are predicted, by formula, in activation_plan.cpp.
#include <algorithm>

#include "common/model/gpt.h"

namespace sc {

BlockSaved Gpt::allocate_block(Ledger& ledger, Purpose purpose, bool with_gelu) const {
  const std::int64_t b = shape_.batch, t = shape_.sequence, d = shape_.config.width,
                     heads = shape_.config.heads;
  const auto slab = [&](const char* name, std::int64_t columns) {
    return ledger.allocate(purpose, name, {b, t, columns}, shape_.dtype);
  };
  const auto statistic = [&](const char* name) {
    return ledger.allocate(purpose, name, {b * t}, DType::f32);
  };
  BlockSaved s;
  s.ln1_out = slab("ln1_out", d);
  s.ln1_mean = statistic("ln1_mean");
  s.ln1_rstd = statistic("ln1_rstd");
  s.qkv = slab("qkv", 3 * d);
  s.lse = ledger.allocate(purpose, "lse", {b, heads, t}, DType::f32);
  s.att = slab("att", d);
  s.mid = slab("mid", d);
  s.ln2_out = slab("ln2_out", d);
  s.ln2_mean = statistic("ln2_mean");
  s.ln2_rstd = statistic("ln2_rstd");
  s.fc = slab("fc", 4 * d);
  if (with_gelu) s.gelu = slab("gelu", 4 * d);
  return s;
}

BlockSaved Gpt::allocate_saved(Ledger& ledger) const {
  if (shape_.activations == Activations::recompute) return {};
  return allocate_block(ledger, Purpose::activations, shape_.activations == Activations::keep);
}

BlockGrads Gpt::allocate_block_grads(Ledger& ledger) const {
  const std::int64_t d = shape_.config.width;
  const auto slab = [&](const char* name, std::int64_t columns) {
    return ledger.allocate(Purpose::workspace, name, {shape_.batch, shape_.sequence, columns}, shape_.dtype);
  };
  BlockGrads grads;
  grads.grad_fc = slab("grad_fc", 4 * d);
  grads.grad_mid = slab("grad_mid", d);
  grads.grad_qkv = slab("grad_qkv", 3 * d);
  grads.grad_vectors = ledger.allocate(Purpose::workspace, "grad_vectors", {13 * d}, DType::f32);
  return grads;
}

Workspace Gpt::allocate_workspace(Ledger& ledger, bool with_head) const {
  const GptConfig& c = shape_.config;
  const std::int64_t b = shape_.batch, t = shape_.sequence, d = c.width;
  const auto slab = [&](const char* name, std::int64_t columns) {
    return ledger.allocate(Purpose::workspace, name, {b, t, columns}, shape_.dtype);
  };
  const auto vector = [&](const char* name, std::int64_t size) {
    return ledger.allocate(Purpose::workspace, name, {size}, DType::f32);
  };
  Workspace ws;
  if (shape_.activations == Activations::recompute)
    ws.recomputed = allocate_block(ledger, Purpose::workspace, true);
  if (shape_.activations == Activations::recompute_gelu) ws.gelu = slab("gelu", 4 * d);
  ws.grads = allocate_block_grads(ledger);
  ws.scratch = slab("scratch", d);
  if (!with_head) return ws;
  ws.head_in = slab("head_in", d);
  ws.head_mean = vector("head_mean", b * t);
  ws.head_rstd = vector("head_rstd", b * t);
  const std::int64_t chunk = std::min(shape_.head_chunk, b * t);
  ws.logits = ledger.allocate(Purpose::workspace, "logits", {chunk, c.vocab_padded()}, shape_.dtype);
  return ws;
}

}  // namespace sc
