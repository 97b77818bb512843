#include "common/model/hop_attention.h"

namespace sc {

HopAttention::HopAttention(const GptHalves& gpt, const ContextCut& cut, PlannedBuffers& buffers)
    : gpt_(gpt),
      cut_(cut),
      calls_(cut.calls(gpt.sizes().run())),
      rows_(gpt.sizes().B),
      heads_(gpt.sizes().heads),
      head_(gpt.layout().config().head_dim()) {
  if (cut.ranks == 1) return;
  const std::int64_t N = gpt.sizes().N;
  out_ = buffers.zeros("hop").view({N, -1});
  lse_ = buffers.zeros("hop_lse");
  grad_kv_ = buffers.zeros("hop_grads").view({N, -1});
  sum_ = buffers.zeros("hop_sum").view({N, -1});
}

at::Tensor HopAttention::keys_values(const at::Tensor& qkv) const {
  return qkv.narrow(1, gpt_.sizes().att, 2 * gpt_.sizes().att);
}

// Of every row some tokens, of [N, matrices a]: [B, tokens, matrices, h, D], of one matrix [B, tokens, h, D].
at::Tensor HopAttention::some(const at::Tensor& of, Range tokens) const {
  return of.view({rows_, gpt_.sizes().T, -1, heads_, head_})
      .narrow(1, tokens.begin, tokens.size())
      .squeeze(2);
}
// A scratch [N, matrices a] as a tensor of so many tokens.
at::Tensor HopAttention::as_many(const at::Tensor& scratch, Range tokens) const {
  return scratch.narrow(0, 0, rows_ * tokens.size())
      .view({rows_, tokens.size(), -1, heads_, head_})
      .squeeze(2);
}

at::Tensor HopAttention::lse_scratch(Range tokens) const {
  return lse_.narrow(0, 0, rows_ * heads_ * tokens.size()).view({rows_, heads_, tokens.size()});
}

QueriesKeysValues HopAttention::operands(int hop, const at::Tensor& kv, const BlockSaved& saved) const {
  const at::Tensor keys = some(hop == 0 ? keys_values(saved.qkv) : kv, call(hop).keys);
  return {some(saved.qkv, call(hop).queries).select(2, 0), keys.select(2, 0), keys.select(2, 1)};
}

// [anchor: merge-as-they-come]
// Hop 0 has all queries: its output is what the next call's is merged into, in fp32 until the last.
void HopAttention::forward(int hop, const at::Tensor& kv, BlockSaved& saved) {
  if (!computes(hop)) return;
  const Range queries = call(hop).queries;
  const QueriesKeysValues in = operands(hop, kv, saved);
  at::Tensor att = some(saved.att, queries), lse = saved.lse.narrow(2, queries.begin, queries.size());
  if (hop == 0) return gpt_.ops().attention(in, call(hop).causal, att, lse);
  at::Tensor out = as_many(out_, queries), lse_here = lse_scratch(queries), sum = some(sum_, queries);
  gpt_.ops().attention(in, call(hop).causal, out, lse_here);
  const bool last = !computes(hop + 1);
  gpt_.ops().merge_attention(out, lse_here, hop == 1 ? att : sum, last ? att : sum, lse);
  if (!last) return;
  const Range done{call(1).queries.begin, queries.begin};  // queries that the last call does not have
  some(saved.att, done).copy_(some(sum_, done));
}

// [anchor: final-statistics]
// A call's probabilities are exp(scores - lse) with the lse of all keys, and its gradients are summands. Hop
// 0, the last, has all queries.
void HopAttention::backward(int hop, const at::Tensor& kv, const BlockSaved& saved, BlockGrads& left) {
  if (!computes(hop)) return;
  const AttentionCall& here = call(hop);
  at::Tensor lse = saved.lse;
  QueriesKeysValues grads = unpacked(some(left.qkv, here.queries));
  if (hop > 0) {
    const at::Tensor grad_kv = as_many(grad_kv_, here.keys);
    grads = {as_many(out_, here.queries), grad_kv.select(2, 0), grad_kv.select(2, 1)};
    lse = lse_scratch(here.queries).copy_(lse.narrow(2, here.queries.begin, here.queries.size()));
  }
  gpt_.ops().attention_backward(some(left.att, here.queries), operands(hop, kv, saved), here.causal,
                                some(saved.att, here.queries), lse, grads);
  if (!computes(1)) return;
  const Range summed = call(1).queries;
  if (hop == 0) grads.q.narrow(1, summed.begin, summed.size()).add_(some(sum_, summed));
  if (hop == 1) some(sum_, summed).copy_(grads.q);
  if (hop > 1) some(sum_, here.queries).add_(grads.q);
}

void HopAttention::add_keys_values(int hop, at::Tensor& grad_kv, Write write) const {
  const Range keys = computes(hop) ? call(hop).keys : Range{};
  if (write == Write::overwrite) some(grad_kv, {keys.end, gpt_.sizes().T}).zero_();
  if (!computes(hop)) return;
  const at::Tensor here = as_many(grad_kv_, keys), sum = some(grad_kv, keys);
  write == Write::overwrite ? sum.copy_(here) : sum.add_(here);
}

}  // namespace sc
