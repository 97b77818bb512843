// Attention of a context rank, which meets a row's keys and values hop by hop: a softmax over some of the
// keys at a time, merged as they come (context_cut.h says who meets whom).
//   B rows of n own tokens, chunk after chunk: B n = N tokens; a = h D elements of the heads here. Source:
//   Milakov and Gimelshein, arXiv:1805.02867 (the merge); Dao et al., arXiv:2205.14135 (backward from the
//   final out and lse).
#pragma once

#include "common/memory/planned_buffers.h"
#include "common/model/context_plan.h"
#include "common/model/gpt_halves.h"

namespace sc {

class HopAttention {
 public:
  /// gpt: of shape_of_part; outlives this.
  HopAttention(const GptHalves& gpt, const ContextCut& cut, PlannedBuffers& buffers);

  [[nodiscard]] const ContextCut& cut() const { return cut_; }
  /// Of queries, keys and values or their gradients, [N, 3 a], the last two: [N, 2 a].
  [[nodiscard]] at::Tensor keys_values(const at::Tensor& qkv) const;

  /// What is computed at a hop, whose keys and values are `kv` [N, 2 a], those of the tokens of their rank;
  /// at hop 0, the first, saved's own (kv is not read). After the last saved.att and lse are complete.
  void forward(int hop, const at::Tensor& kv, BlockSaved& saved);
  /// First hop 1, ..., last hop 0, which leaves left.qkv: the queries' gradient, and this rank's summand of
  /// its own keys' and values'.
  void backward(int hop, const at::Tensor& kv, const BlockSaved& saved, BlockGrads& left);
  /// What backward has just added to the gradient of another rank's keys and values, [N, 2 a] fp32.
  ///   overwrite  zero where no query here sees them
  void add_keys_values(int hop, at::Tensor& grad_kv, Write write) const;

 private:
  [[nodiscard]] bool computes(int hop) const { return hop < static_cast<int>(calls_.size()); }
  [[nodiscard]] const AttentionCall& call(int hop) const { return calls_[static_cast<std::size_t>(hop)]; }
  [[nodiscard]] at::Tensor some(const at::Tensor& of, Range tokens) const;
  [[nodiscard]] at::Tensor as_many(const at::Tensor& scratch, Range tokens) const;
  [[nodiscard]] at::Tensor lse_scratch(Range tokens) const;
  [[nodiscard]] QueriesKeysValues operands(int hop, const at::Tensor& kv, const BlockSaved& saved) const;

  const GptHalves& gpt_;
  const ContextCut cut_;
  const std::vector<AttentionCall> calls_;  // in tokens
  std::int64_t rows_, heads_, head_;        // B, h, D
  at::Tensor out_, lse_, grad_kv_;          // of a call: out or grad_q [N, a]; [N h] fp32; [N, 2 a]
  at::Tensor sum_;                          // [N, a] fp32: out, or the queries' gradient, of hops 1 and later
};

}  // namespace sc
