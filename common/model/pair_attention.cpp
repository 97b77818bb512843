#include "common/model/pair_attention.h"

namespace sc {

PairAttention::PairAttention(const GptHalves& gpt, const ContextCut& cut, PlannedBuffers& buffers)
    : gpt_(gpt),
      cut_(cut),
      pairs_(cut.pairs()),
      rows_(gpt.sizes().B / cut.chunks_of_rank()),
      heads_(gpt.sizes().heads),
      head_(gpt.layout().config().head_dim()) {
  const std::int64_t m = gpt.sizes().T;
  out_ = buffers.zeros("pair").view({rows_, m, heads_, head_});
  lse_ = buffers.zeros("pair_lse").view({rows_, heads_, m});
  grad_kv_ = buffers.zeros("pair_grads").view({rows_, m, 2, heads_, head_});
  sum_ = buffers.zeros("pair_sum").view({gpt.sizes().N, gpt.sizes().att});
}

void PairAttention::keys_values(const BlockSaved& saved, at::Tensor& kv) const {
  const std::int64_t a = gpt_.sizes().att;
  kv.copy_(saved.qkv.narrow(1, a, 2 * a));
}

// `chunk` of the row, of [N, matrices a]: [B, m, matrices, h, D].
at::Tensor PairAttention::chunk(const at::Tensor& of, int chunk, std::int64_t matrices) const {
  return of.view({cut_.chunks_of_rank() * rows_, gpt_.sizes().T, matrices, heads_, head_})
      .narrow(0, cut_.place_of(chunk) * rows_, rows_);
}

at::Tensor PairAttention::lse_of(const BlockSaved& saved, int chunk) const {
  return saved.lse.narrow(0, cut_.place_of(chunk) * rows_, rows_);
}

QueriesKeysValues PairAttention::operands(const ChunkPair& pair, const at::Tensor& kv,
                                          const BlockSaved& saved) const {
  const at::Tensor keys =
      pair.hop == 0 ? chunk(saved.qkv, pair.key, 3).narrow(2, 1, 2) : chunk(kv, pair.key, 2);
  return {chunk(saved.qkv, pair.query, 3).select(2, 0), keys.select(2, 0), keys.select(2, 1)};
}

// [anchor: merge-as-they-come]
// The first keys that a chunk of queries meets are its own, at hop 0: what is merged always has a sum
// already.
void PairAttention::forward(int hop, const at::Tensor& kv, BlockSaved& saved) {
  int begun = -1;  // the chunk of queries that has met keys at hop 0
  for (const ChunkPair& pair : pairs_) {
    if (pair.hop != hop) continue;
    gpt_.ops().attention(operands(pair, kv, saved), pair.diagonal(), out_, lse_);
    at::Tensor sum = chunk(sum_, pair.query, 1).select(2, 0), lse = lse_of(saved, pair.query);
    const bool first = hop == 0 && pair.query != begun;
    begun = pair.query;
    gpt_.ops().merge_attention(out_, lse_, sum, lse, first ? Write::overwrite : Write::accumulate);
  }
}

void PairAttention::end_forward(BlockSaved& saved) { saved.att.copy_(sum_); }

// [anchor: final-statistics]
// A pair's probabilities are exp(scores - lse) with the lse of all keys, and its gradients are summands.
void PairAttention::backward(int hop, const at::Tensor& kv, const BlockSaved& saved, const BlockGrads& left,
                             at::Tensor& grad_kv) {
  if (hop == 1 % cut_.ranks) sum_.zero_();
  std::vector<int> unmet = cut_.chunks_of(cut_.source(hop));
  for (const ChunkPair& pair : pairs_) {
    if (pair.hop != hop) continue;
    QueriesKeysValues grads{out_, grad_kv_.select(2, 0), grad_kv_.select(2, 1)};
    gpt_.ops().attention_backward(chunk(left.att, pair.query, 1).select(2, 0), operands(pair, kv, saved),
                                  pair.diagonal(), chunk(saved.att, pair.query, 1).select(2, 0),
                                  lse_of(saved, pair.query), grads);
    chunk(sum_, pair.query, 1).select(2, 0).add_(out_);
    at::Tensor sum_kv = chunk(grad_kv, pair.key, 2);
    if (std::erase(unmet, pair.key) > 0)
      sum_kv.copy_(grad_kv_);
    else
      sum_kv.add_(grad_kv_);
  }
  for (const int key : unmet) chunk(grad_kv, key, 2).zero_();
}

void PairAttention::end_backward(const at::Tensor& grad_kv, BlockGrads& left) {
  const std::int64_t a = gpt_.sizes().att;
  left.qkv.narrow(1, 0, a).copy_(sum_);
  left.qkv.narrow(1, a, 2 * a).copy_(grad_kv);
}

}  // namespace sc
