// Attention of a context rank, which meets a row's keys and values chunk by chunk: a softmax over some of the
// keys at a time, merged as they come (context_cut.h says in which order).
//   C chunks of m tokens of each of B rows: C B m = N tokens; a = h D elements of the heads here. Tensors of
//   N tokens have the first chunk of all rows first. Source: Milakov and Gimelshein, arXiv:1805.02867 (the
//   merge); Dao et al., arXiv:2205.14135 (backward from the final out and lse).
#pragma once

#include "common/memory/planned_buffers.h"
#include "common/model/context_plan.h"
#include "common/model/gpt_halves.h"

namespace sc {

class PairAttention {
 public:
  /// gpt: of shape_of_part; outlives this.
  PairAttention(const GptHalves& gpt, const ContextCut& cut, PlannedBuffers& buffers);

  [[nodiscard]] const ContextCut& cut() const { return cut_; }
  /// This rank's keys and values, [N, 2 a], as they travel.
  void keys_values(const BlockSaved& saved, at::Tensor& kv) const;

  /// All pairs of a hop, whose keys and values are `kv`, those of the tokens of their rank; at hop 0, the
  /// first, saved's own (kv is not read).
  void forward(int hop, const at::Tensor& kv, BlockSaved& saved);
  /// After the last: saved.att.
  void end_forward(BlockSaved& saved);
  /// First hop 1, ..., last hop 0.
  /// grad_kv [N, 2 a] fp32: what this rank adds to the gradient of the hop's keys and values; written whole.
  void backward(int hop, const at::Tensor& kv, const BlockSaved& saved, const BlockGrads& left,
                at::Tensor& grad_kv);
  /// After the last: left.qkv. grad_kv: the sum over ranks of those of this rank's own.
  void end_backward(const at::Tensor& grad_kv, BlockGrads& left);

 private:
  [[nodiscard]] at::Tensor chunk(const at::Tensor& of, int chunk, std::int64_t matrices) const;
  [[nodiscard]] at::Tensor lse_of(const BlockSaved& saved, int chunk) const;
  [[nodiscard]] QueriesKeysValues operands(const ChunkPair& pair, const at::Tensor& kv,
                                           const BlockSaved& saved) const;

  const GptHalves& gpt_;
  const ContextCut cut_;
  std::vector<ChunkPair> pairs_;
  std::int64_t rows_, heads_, head_;  // B, h, D
  at::Tensor out_, lse_;              // of a pair: [B, m, h, D], [B, h, m] fp32; out_ is grad_q in backward
  at::Tensor grad_kv_;                // of a pair: [B, m, 2, h, D]
  at::Tensor sum_;                    // [N, a] fp32: out, or the queries' gradient
};

}  // namespace sc
