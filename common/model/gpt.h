// GPT-2 as pure functions of flat parameter vectors. Stateless: the caller passes every tensor.
//   x, y and their gradients: [B, T, d] in the workload's dtype.
//   tokens, targets: [B, T] int64; a target < 0 has no loss.
//   Parameters and gradients of one unit: UnitTensors, two flat vectors laid out by ParamLayout.
// Elements of a unit's vectors between tensors and after the last one are never written: a gradient vector is
// zeroed once, when it is allocated, so that norms and optimizers may run over whole vectors.
#pragma once

#include "common/memory/ledger.h"  // where all that is handed in comes from
#include "common/model/gpt_halves.h"

namespace sc {

class Gpt : public GptHalves {
 public:
  /// Copies both arguments and keeps no tensor.
  ///   Errors  InputError if there are no Ops for the run's backend and device, or T > context.
  Gpt(const RunShape& run, const ParamLayout& layout);

  void embed(const UnitTensors& params0, const at::Tensor& tokens, at::Tensor& x_out) const;
  /// Sets saved.x = x; y_out may not alias x.
  void forward_block(int unit, const UnitTensors& params, const at::Tensor& x, BlockSaved& saved,
                     Workspace& ws, at::Tensor& y_out) const;
  /// Computes the gradient of the block's input, and stores in `left` what the weights' gradients need. With
  /// recompute and recompute_gelu they also need ws, which nothing else may use before backward_weights of
  /// the same unit. grad_y must differ from grad_x_out and stay alive until then, because `left` keeps a
  /// handle.
  void backward_input(int unit, const UnitTensors& params, BlockSaved& saved, const at::Tensor& grad_y,
                      Workspace& ws, BlockGrads& left, at::Tensor& grad_x_out) const;
  /// Recomputes what backward_weights reads from ws (recompute, recompute_gelu), if something else has used
  /// ws since backward_input. Does nothing with activations=keep.
  void recompute(int unit, const UnitTensors& params, BlockSaved& saved, Workspace& ws) const;
  void backward_weights(int unit, BlockSaved& saved, Workspace& ws, const BlockGrads& left,
                        const UnitTensors& grads, Write write) const;
  /// The loss, and its gradients times `scale` ([] fp32: usually 1 / targets of the global batch).
  /// head_params and grad_head are [V_pad, d]: wte's matrix in unit 0 (tied) or lm_head's in unit L+1; see
  /// head_matrix(). With `scale` undefined only the loss is computed.
  void head(const at::Tensor& head_params, const UnitTensors& ln_f, const at::Tensor& x,
            const at::Tensor& targets, const at::Tensor& scale, at::Tensor& grad_x_out, at::Tensor& grad_head,
            const UnitTensors& grad_ln_f, Write write, Workspace& ws, HeadResult& result) const;
  void head_loss(const at::Tensor& head_params, const UnitTensors& ln_f, const at::Tensor& x,
                 const at::Tensor& targets, Workspace& ws, HeadResult& result) const;
  /// With a tied head, wte accumulates onto the gradient that head() wrote; wpe overwrites on the first
  /// micro-batch.
  void embed_backward(const at::Tensor& tokens, const at::Tensor& grad_x, const UnitTensors& grads0,
                      Write wte, Write wpe) const;

  [[nodiscard]] const RunShape& shape() const { return shape_; }

 private:
  /// The tensors that hold a block's forward, and GELU's output: `saved`'s own or the Workspace's.
  [[nodiscard]] BlockSaved& used(BlockSaved& saved, Workspace& ws) const;
  [[nodiscard]] at::Tensor& gelu(BlockSaved& saved, Workspace& ws) const;
  void forward_to_gelu(int unit, const UnitTensors& params, BlockSaved& s, at::Tensor& gelu) const;
  void second_product(int unit, Half half, const UnitTensors& params, const at::Tensor& in,
                      const at::Tensor& residual, at::Tensor& out) const;

  RunShape shape_;
};

/// GPT-2's deterministic initialisation of one unit: a function of (seed, tensor name, element), so that it
/// depends neither on the world nor on the layout. Normal(0, 0.02), residual projections scaled by 1/sqrt(2
/// L); biases 0, norms 1; padding rows and gaps 0.
void init_unit(const ParamLayout& layout, int unit, std::uint64_t seed, const UnitTensors& params);
/// Does init_unit() for one slice: `out` [range.size()] is that range of the unit's segment, so no rank needs
/// the whole unit.
void init_slice(const ParamLayout& layout, int unit, Segment segment, Range range, std::uint64_t seed,
                const at::Tensor& out);

}  // namespace sc
