// GPT-2 on one tensor rank: pure functions of flat vectors laid out by a cut ParamLayout, each computing from
// one collective to the next. A block's halves are its attention and its MLP. Each has two collectives:
// tokens are gathered before its two matrices, and sums of their products are scattered after them.
//   rows: [n, d] of this rank's tokens; gathered: [N, d] of all tokens. Other shapes: block_buffers.h.
//   Source  arXiv:1909.08053 section 3 (the cut), arXiv:2205.05198 section 4.2 (tokens split between the
//           halves).
#pragma once

#include <span>

#include "common/model/gpt_halves.h"

namespace sc {

class GptParts : public GptHalves {
 public:
  using GptHalves::GptHalves;

  /// partial [N, d] = wte[tokens] where this rank has the row, zeros elsewhere: over all ranks they add up to
  /// wte[tokens].
  void embed(const UnitTensors& params0, const at::Tensor& tokens, at::Tensor& partial) const;
  /// x [n, d] = sum [n, d] + wpe, for this rank's tokens.
  void positions(const UnitTensors& params0, const at::Tensor& sum, at::Tensor& x) const;

  /// From the first matrix's result to this rank's summand [N, d] of the second's.
  void second_product(int unit, Half half, const UnitTensors& params, BlockSaved& saved,
                      const at::Tensor& gelu, at::Tensor& partial) const;
  /// What follows a half's sum over ranks, all [n, d]: out = (in + bias) + sum, the input of the next half or
  /// the head, and its norm (null: no norm follows on this rank).
  ///   params  by unit
  void add_norm(int unit, Half half, std::span<const UnitTensors> params, const at::Tensor& in,
                const at::Tensor& sum, at::Tensor& out, BlockNorm* norm) const;
  /// out = the norm's gradient + grad_y, since grad_y also reaches the half's input through the residual; all
  /// [n, d].
  void norm_backward(int unit, Half half, const UnitTensors& params, const BlockSaved& saved,
                     const at::Tensor& sum, const at::Tensor& grad_y, BlockGrads& left,
                     at::Tensor& out) const;

  /// Logits of rows [c, d] in this rank's columns of the vocabulary, and their statistics [c, 2].
  void logits(const at::Tensor& head, const at::Tensor& rows, at::Tensor& logits,
              at::Tensor& statistics) const;
  /// Loss and token count for targets in this rank's columns, using the statistics of all ranks. If `scale`
  /// is defined, also the logits' gradient.
  void loss(at::Tensor& logits, const at::Tensor& targets, const at::Tensor& of_all, const at::Tensor& scale,
            HeadResult& result) const;
  void head_products(const at::Tensor& head, const at::Tensor& logits, const at::Tensor& rows,
                     at::Tensor& grad_head, Write write, at::Tensor& partial) const;

  /// Adds gradient [N, d] to this rank's rows of the vocabulary.
  void embed_backward(const at::Tensor& tokens, const at::Tensor& gradient, const UnitTensors& grads0,
                      Write write) const;

 private:
  [[nodiscard]] Range real_columns() const;
};

}  // namespace sc
