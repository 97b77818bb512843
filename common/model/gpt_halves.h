// The halves of a GPT's blocks and the norm of its head, as one device and a tensor rank compute them alike:
// pure functions of flat vectors. Every tensor that they touch is handed in.
//   Source: GPT-2 (Radford et al. 2019) as in Hugging Face transformers' modeling_gpt2.py: pre-norm, tanh
//   GELU, eps 1e-5, no dropout.
#pragma once

#include <algorithm>
#include <memory>
#include <string_view>

#include "common/memory/plan.h"
#include "common/model/attention.h"
#include "common/model/ops.h"
#include "common/model/part_plan.h"

namespace sc {

/// Parameters and gradients of one unit are UnitTensors, two flat vectors laid out by ParamLayout; shapes as
/// in block_buffers.h. Callers compute in inference mode, if they made the tensors in it.
class GptHalves {
 public:
  /// Keeps no tensor; copies its arguments.  Errors: InputError where no Ops exist for the run's backend and
  /// device.
  GptHalves(const RunShape& run, const ParamLayout& layout, const PartSizes& sizes);

  /// Of what the half begins with: where nothing else has normed that, and for backward again.
  void norm(int unit, Half half, const UnitTensors& params, BlockSaved& saved) const;
  /// From norms [N, d] to queries, keys and values of the heads here, or to the MLP's columns here.
  ///   gelu  [N, m] where GELU's output goes (saved's own, or a scratch)
  void first_product(int unit, Half half, const UnitTensors& params, const at::Tensor& norms,
                     BlockSaved& saved, at::Tensor& gelu) const;
  /// From saved.qkv to saved.att and lse, and from left.att to left.qkv: by this model's own operations, or
  /// by the attention that use() has handed in, which outlives this.
  void attend(int unit, BlockSaved& saved) const;
  void attend_backward(int unit, const BlockSaved& saved, BlockGrads& left) const;
  void use(Attention& attention) { attention_ = &attention; }
  void gelu_again(const BlockSaved& saved, at::Tensor& gelu) const { ops_->gelu(saved.fc, gelu); }

  /// gradient [N, d], of what the second matrix made -> partial [N, d], that of the norm's output.
  void backward_to_norm(int unit, Half half, const UnitTensors& params, const BlockSaved& saved,
                        const at::Tensor& gradient, BlockGrads& left, at::Tensor& partial) const;
  /// The same in two, between which attention's half has its attend_backward: to what the second matrix read,
  /// left.att or left.fc, and on to the norm's output.
  void backward_of_second(int unit, Half half, const UnitTensors& params, const at::Tensor& gradient,
                          BlockGrads& left) const;
  void backward_of_first(int unit, Half half, const UnitTensors& params, const BlockSaved& saved,
                         BlockGrads& left, at::Tensor& partial) const;
  /// Of the half's second matrix, and of its first.
  void second_weights(int unit, Half half, const BlockSaved& saved, const at::Tensor& gelu,
                      const at::Tensor& gradient, const UnitTensors& grads, Write write) const;
  void first_weights(int unit, Half half, const at::Tensor& norms, const BlockGrads& left,
                     const UnitTensors& grads, Write write) const;
  /// Norms and biases. A tensor rank's replicated ones are of its own tokens alone.
  void vectors(int unit, const BlockGrads& left, const UnitTensors& grads, Write write) const;

  void head_norm(const UnitTensors& ln_f, const at::Tensor& x, Workspace& ws) const;
  /// sum [n, d], the gradient of the norm's output -> out [n, d], that of its input.
  void head_norm_backward(const UnitTensors& ln_f, const at::Tensor& x, const at::Tensor& sum,
                          const UnitTensors& grads, Write write, Workspace& ws, at::Tensor& out) const;

  /// The head's matrix inside unit 0's (tied) or the last unit's vectors, [v, d].
  [[nodiscard]] at::Tensor head_matrix(const UnitTensors& head_unit) const;
  /// 0 if tied, L + 1 if not.
  [[nodiscard]] int head_unit() const { return layout_.config().tied ? 0 : layout_.last_unit(); }
  [[nodiscard]] const Ops& ops() const { return *ops_; }
  /// A named tensor inside a unit's vectors, in its shape.
  [[nodiscard]] at::Tensor view(int unit, const UnitTensors& tensors, std::string_view name) const;
  [[nodiscard]] const ParamLayout& layout() const { return layout_; }
  [[nodiscard]] const PartSizes& sizes() const { return sizes_; }

 protected:
  /// f(elements of `run`, where they are in what begins where they do, positions): `run` of `all` rows or
  /// tokens in pieces, none of which goes from one of PartSizes::starts into the next.
  template <class F>
  void for_each_start(std::int64_t all, Range run, const F& f) const {
    const auto starts = static_cast<std::int64_t>(sizes_.starts.size());
    for (std::int64_t i = 0; i < starts; ++i) {
      const std::int64_t begin = i * all / starts, end = (i + 1) * all / starts,
                         start = sizes_.starts[static_cast<std::size_t>(i)];
      const Range piece{std::max(begin, run.begin), std::min(end, run.end)};
      if (piece.size() <= 0) continue;
      f(Range{piece.begin - run.begin, piece.end - run.begin}, Range{piece.begin - begin, piece.end - begin},
        Range{start, layout_.config().context});
    }
  }
  static at::Tensor part(const at::Tensor& of, Range rows) { return of.narrow(0, rows.begin, rows.size()); }
  /// How pieces write the gradient of positions, of which each has some.
  [[nodiscard]] Write begin_positions(at::Tensor& grad_wpe, Write write) const;
  [[nodiscard]] at::Tensor view(int unit, const UnitTensors& tensors, std::size_t index) const;
  /// Where a half's norm leaves the sums of its backward: its own parameters', and the second matrix's bias',
  /// which was added to what `residual` is the gradient of.
  [[nodiscard]] LayerNormSums norm_sums(Half half, const BlockGrads& left) const;
  /// out = the norm's gradient + grad_y, which reaches the half's input past it; all [n, d].
  void norm_backward(int unit, Half half, const UnitTensors& params, const BlockSaved& saved,
                     const at::Tensor& sum, const at::Tensor& grad_y, LayerNormSums sums,
                     at::Tensor& out) const;

  ParamLayout layout_;
  PartSizes sizes_;
  std::shared_ptr<const Ops> ops_;

 private:
  Attention* attention_ = nullptr;                               // null: this model's own
  [[nodiscard]] at::Tensor by_head(const at::Tensor& t) const;   // [B, T, h, D]
  [[nodiscard]] at::Tensor packed(const at::Tensor& qkv) const;  // [B, T, 3, h, D]
};

}  // namespace sc
