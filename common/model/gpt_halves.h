// The parts of a GPT that one device and a tensor rank compute alike: the halves of the blocks, and the
// head's norm. Pure functions of flat vectors; the caller passes every tensor.
//   Source  GPT-2 (Radford et al. 2019) as in Hugging Face transformers' modeling_gpt2.py: pre-norm, tanh
//           GELU, eps 1e-5, no dropout.
#pragma once

#include <algorithm>
#include <memory>
#include <string_view>

#include "common/memory/plan.h"
#include "common/model/attention.h"
#include "common/model/ops.h"
#include "common/model/part_plan.h"

namespace sc {

/// Parameters and gradients of one unit are UnitTensors, two flat vectors laid out by ParamLayout; shapes are
/// those of block_buffers.h. Tensors made in inference mode require calls in inference mode.
class GptHalves {
 public:
  /// Copies its arguments and keeps no tensor.
  ///   Errors  InputError if there are no Ops for the run's backend and device.
  GptHalves(const RunShape& run, const ParamLayout& layout, const PartSizes& sizes);

  /// Norms the half's input: in forward if nothing else has done so, and again for backward.
  void norm(int unit, Half half, const UnitTensors& params, BlockSaved& saved) const;
  /// Multiplies norms [N, d] by the half's first matrix: this rank's queries, keys and values, or its columns
  /// of the MLP.
  ///   gelu  [N, m] receives GELU's output (saved's own, or a scratch)
  void first_product(int unit, Half half, const UnitTensors& params, const at::Tensor& norms,
                     BlockSaved& saved, at::Tensor& gelu) const;
  /// From saved.qkv to saved.att and lse, and from left.att to left.qkv: by this model's own operations, or
  /// by the attention that use() has handed in, which outlives this.
  void attend(int unit, BlockSaved& saved) const;
  void attend_backward(int unit, const BlockSaved& saved, BlockGrads& left) const;
  void use(Attention& attention) { attention_ = &attention; }
  void gelu_again(const BlockSaved& saved, at::Tensor& gelu) const { ops_->gelu(saved.fc, gelu); }

  /// From `gradient` [N, d] of the second matrix's result to `partial` [N, d], that of the norm's output.
  void backward_to_norm(int unit, Half half, const UnitTensors& params, const BlockSaved& saved,
                        const at::Tensor& gradient, BlockGrads& left, at::Tensor& partial) const;
  /// The same in two, between which attention's half has its attend_backward: to what the second matrix read,
  /// left.att or left.fc, and on to the norm's output.
  void backward_of_second(int unit, Half half, const UnitTensors& params, const at::Tensor& gradient,
                          BlockGrads& left) const;
  void backward_of_first(int unit, Half half, const UnitTensors& params, const BlockSaved& saved,
                         BlockGrads& left, at::Tensor& partial) const;
  /// Weight gradients of the half's second matrix, and of its first.
  void second_weights(int unit, Half half, const BlockSaved& saved, const at::Tensor& gelu,
                      const at::Tensor& gradient, const UnitTensors& grads, Write write) const;
  void first_weights(int unit, Half half, const at::Tensor& norms, const BlockGrads& left,
                     const UnitTensors& grads, Write write) const;
  /// Stores the gradients of norms and biases. On a tensor rank replicated ones cover only its own tokens.
  void vectors(int unit, const BlockGrads& left, const UnitTensors& grads, Write write) const;

  /// Adds `rows` [n, d], the gradient of this rank's tokens, over micro-batch rows into wpe's gradient.
  void positions_backward(const at::Tensor& rows, const UnitTensors& grads0, Write write) const;

  void head_norm(const UnitTensors& ln_f, const at::Tensor& x, Workspace& ws) const;
  /// From `sum` [n, d], the gradient of the norm's output, to `out` [n, d], the gradient of its input.
  void head_norm_backward(const UnitTensors& ln_f, const at::Tensor& x, const at::Tensor& sum,
                          const UnitTensors& grads, Write write, Workspace& ws, at::Tensor& out) const;

  /// The head's matrix, [v, d], inside the vectors of unit 0 (tied) or the last unit.
  [[nodiscard]] at::Tensor head_matrix(const UnitTensors& head_unit) const;
  /// The unit that has the head's matrix: 0 if tied, otherwise L + 1.
  [[nodiscard]] int head_unit() const { return layout_.config().tied ? 0 : layout_.last_unit(); }
  [[nodiscard]] const Ops& ops() const { return *ops_; }
  /// A named tensor inside a unit's vectors, in its shape.
  [[nodiscard]] at::Tensor view(int unit, const UnitTensors& tensors, std::string_view name) const;
  [[nodiscard]] const ParamLayout& layout() const { return layout_; }
  [[nodiscard]] const PartSizes& sizes() const { return sizes_; }

 protected:
  /// f(elements of this rank's tokens, where they are in what begins where they do, positions): its tokens in
  /// pieces, which are all where a row is one run of positions, and otherwise none that goes from a run into
  /// the next.
  template <class F>
  void for_each_run(const F& f) const {
    const auto starts = static_cast<std::int64_t>(sizes_.starts.size());
    const std::int64_t length = starts == 1 ? sizes_.N : sizes_.run();
    for (std::int64_t begin = 0; begin < sizes_.N; begin += length) {
      const Range piece{std::max(begin, sizes_.tokens.begin), std::min(begin + length, sizes_.tokens.end)};
      if (piece.size() <= 0) continue;
      f(Range{piece.begin - sizes_.tokens.begin, piece.end - sizes_.tokens.begin},
        Range{piece.begin - begin, piece.end - begin},
        Range{sizes_.starts[static_cast<std::size_t>(begin / length % starts)], layout_.config().context});
    }
  }
  static at::Tensor part(const at::Tensor& of, Range rows) { return of.narrow(0, rows.begin, rows.size()); }
  [[nodiscard]] at::Tensor view(int unit, const UnitTensors& tensors, std::size_t index) const;
  /// Where a half's norm stores the sums of its backward: those of its own parameters, and of the second
  /// matrix's bias, which was added to the tensor whose gradient is `residual`.
  [[nodiscard]] LayerNormSums norm_sums(Half half, const BlockGrads& left) const;
  /// out = the norm's gradient + grad_y, since grad_y also reaches the half's input through the residual; all
  /// [n, d].
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
