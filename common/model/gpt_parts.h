// GPT-2 as one tensor rank computes it: pure functions of flat vectors that ParamLayout has cut, each from
// one collective to the next. What is cut meets what is whole in two places of a half block: tokens are
// gathered before its two matrices, and summed behind them.
//   rows: [n, d] of this rank's tokens; gathered: [N, d] of all. Other shapes: block_buffers.h.
// Source: arXiv:1909.08053 section 3 (the cut), arXiv:2205.05198 section 4.2 (tokens split between the
// halves).
#pragma once

#include <span>

#include "common/model/gpt_halves.h"

namespace sc {

class GptParts : public GptHalves {
 public:
  using GptHalves::GptHalves;

  /// partial [N, d] = rows of my vocabulary, zeros elsewhere: summed over ranks it is wte[tokens].
  void embed(const UnitTensors& params0, const at::Tensor& tokens, at::Tensor& partial) const;
  /// x = sum + wpe.
  void positions(const UnitTensors& params0, const at::Tensor& sum, at::Tensor& x) const;

  /// From what the first matrix made to a summand of all tokens.
  void second_product(int unit, Half half, const UnitTensors& params, BlockSaved& saved,
                      const at::Tensor& gelu, at::Tensor& partial) const;
  /// What follows a half's sum, all [n, d]: out = (in + bias) + sum, which the next half begins with, or the
  /// head; and the norm of that (null: nothing follows here).
  ///   params  by unit
  void add_norm(int unit, Half half, std::span<const UnitTensors> params, const at::Tensor& in,
                const at::Tensor& sum, at::Tensor& out, BlockNorm* norm) const;
  /// out = the norm's gradient + grad_y, which reaches the half's input past it; all [n, d].
  void norm_backward(int unit, Half half, const UnitTensors& params, const BlockSaved& saved,
                     const at::Tensor& sum, const at::Tensor& grad_y, BlockGrads& left,
                     at::Tensor& out) const;

  /// Logits of rows [c, d] in my columns, and their statistics.
  void logits(const at::Tensor& head, const at::Tensor& rows, at::Tensor& logits,
              at::Tensor& statistics) const;
  /// With those of all ranks: loss and tokens of targets in my columns, and the logits' gradient if `scale`
  /// is defined.
  void loss(at::Tensor& logits, const at::Tensor& targets, const at::Tensor& of_all, const at::Tensor& scale,
            HeadResult& result) const;
  void head_products(const at::Tensor& head, const at::Tensor& logits, const at::Tensor& rows,
                     at::Tensor& grad_head, Write write, at::Tensor& partial) const;

  /// gradient [N, d]: onto rows of my vocabulary; rows [n, d]: onto positions.
  void embed_backward(const at::Tensor& tokens, const at::Tensor& gradient, const UnitTensors& grads0,
                      Write write) const;
  void positions_backward(const at::Tensor& rows, const UnitTensors& grads0, Write write) const;

 private:
  [[nodiscard]] Range real_columns() const;
};

}  // namespace sc
