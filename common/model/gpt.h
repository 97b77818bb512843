// GPT-2 as pure functions of flat parameter vectors. Stateless: every tensor it touches is handed in.
//   x, y and their gradients: [B, T, d] in the workload's dtype.
//   tokens, targets: [B, T] int64; a target < 0 has no loss.
//   Parameters and gradients of one unit: UnitTensors, two flat vectors laid out by ParamLayout.
// Elements of a unit's vectors between tensors and behind the last are never written: a gradient vector is
// zeroed once, when it is allocated, so that norms and optimizers may run over whole vectors.
// Source: GPT-2 (Radford et al. 2019) as in Hugging Face transformers' modeling_gpt2.py: pre-norm, tanh GELU,
// eps 1e-5, no dropout.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string_view>

#include "common/memory/ledger.h"
#include "common/memory/plan.h"
#include "common/model/ops.h"
#include "common/model/param_layout.h"

namespace sc {

/// One unit's flat vectors; `whole` is undefined unless persist_below made that segment non-empty.
struct UnitTensors {
  at::Tensor sharded, whole;
  [[nodiscard]] const at::Tensor& segment(Segment s) const { return s == Segment::sharded ? sharded : whole; }
};

/// What a block's backward needs from its forward. Allocated once (purpose activations); never aliases
/// parameters. With activations = recompute only `x` is set; with recompute_gelu `gelu` is undefined and the
/// Workspace's is used.
struct BlockSaved {
  at::Tensor x;  // [B, T, d] handle of the block's input, set by forward_block: the caller keeps its memory
  at::Tensor ln1_out, ln1_mean, ln1_rstd;  // [B, T, d], [B*T] fp32 x 2
  at::Tensor qkv, lse, att;                // [B, T, 3d], [B, H, T] fp32, [B, T, d]
  at::Tensor mid;                          // [B, T, d] x + attention
  at::Tensor ln2_out, ln2_mean, ln2_rstd;
  at::Tensor fc;    // [B, T, 4d] before GELU
  at::Tensor gelu;  // [B, T, 4d]
};

/// What backward_input leaves for backward_weights of the same unit. One is enough where the one follows the
/// other; where weights come later, one for each block that has not had them. Allocated once (purpose
/// workspace).
struct BlockGrads {
  at::Tensor grad_y;                       // [B, T, d] handle of the block's output gradient
  at::Tensor grad_fc, grad_mid, grad_qkv;  // [B, T, 4d], [B, T, d], [B, T, 3d]
  at::Tensor grad_vectors;  // [13 d] fp32: gradients of norms and biases, in the layout's order
};

/// Scratch of one block at a time, and of the head. Allocated once (purpose workspace).
struct Workspace {
  BlockSaved recomputed;  // with recompute: the one set that forward writes and backward refills
  at::Tensor gelu;        // [B, T, 4d] with recompute_gelu
  BlockGrads grads;
  // head; undefined where the head is computed elsewhere:
  at::Tensor head_in;               // [B, T, d] ln_f's output
  at::Tensor head_mean, head_rstd;  // [B*T] fp32
  at::Tensor logits;                // [min(head_chunk, B*T), V_pad]
  at::Tensor scratch;               // [B, T, d] a temporary of backward
};

/// Sums over this call's tokens, added onto what is there: zero them once a step.
struct HeadResult {
  at::Tensor loss_sum;  // [] fp64, nats
  at::Tensor tokens;    // [] fp64, targets >= 0
};

/// The shape a model runs at.
struct GptShape {
  GptConfig config;
  std::int64_t batch = 1, sequence = 1;  // B, T
  std::int64_t head_chunk = 4096;
  DType dtype = DType::f32;
  Activations activations = Activations::keep;
  OpsBackend ops = OpsBackend::aten;
  DeviceKind device = DeviceKind::cpu;
  int threads = 1;
  bool cudnn_attention = true;  // as RunShape's
};
GptShape shape_of(const RunShape& run);

class Gpt {
 public:
  /// Keeps no tensor; copies both arguments.  Errors: InputError where no Ops exist for the shape's backend
  /// and device, or T > context.
  Gpt(const GptShape& shape, const ParamLayout& layout);

  void embed(const UnitTensors& params0, const at::Tensor& tokens, at::Tensor& x_out) const;
  /// y_out may not alias x. Sets saved.x = x.
  void forward_block(int unit, const UnitTensors& params, const at::Tensor& x, BlockSaved& saved,
                     Workspace& ws, at::Tensor& y_out) const;
  /// Gradient of the block's input, and in `left` what the weights' gradients need; with recompute and
  /// recompute_gelu in ws as well, which nothing else may use before backward_weights of the same unit.
  /// grad_y must differ from grad_x_out and stay until then: `left` keeps a handle.
  void backward_input(int unit, const UnitTensors& params, BlockSaved& saved, const at::Tensor& grad_y,
                      Workspace& ws, BlockGrads& left, at::Tensor& grad_x_out) const;
  /// What backward_weights reads in ws with recompute and recompute_gelu, made again where something else has
  /// used ws since backward_input; with keep nothing.
  void recompute(int unit, const UnitTensors& params, const BlockSaved& saved, Workspace& ws) const;
  /// Writes or adds to every tensor of the unit.
  void backward_weights(int unit, const BlockSaved& saved, const Workspace& ws, const BlockGrads& left,
                        const UnitTensors& grads, Write write) const;
  /// Loss, and its gradients times `scale` ([] fp32: usually 1 / targets of the global batch).
  /// head_params and grad_head: [V_pad, d], wte's matrix in unit 0 (tied) or lm_head's in unit L+1: see
  /// head_matrix().
  void head(const at::Tensor& head_params, const UnitTensors& ln_f, const at::Tensor& x,
            const at::Tensor& targets, const at::Tensor& scale, at::Tensor& grad_x_out, at::Tensor& grad_head,
            const UnitTensors& grad_ln_f, Write write, Workspace& ws, HeadResult& result) const;
  void head_loss(const at::Tensor& head_params, const UnitTensors& ln_f, const at::Tensor& x,
                 const at::Tensor& targets, Workspace& ws, HeadResult& result) const;
  /// tied, joint: wte accumulates onto what head() wrote; wpe overwrites on the first micro-batch.
  void embed_backward(const at::Tensor& tokens, const at::Tensor& grad_x, const UnitTensors& grads0,
                      Write wte, Write wpe) const;

  /// The head's matrix inside unit 0's (tied) or unit L+1's (untied) vectors, as [V_pad, d].
  [[nodiscard]] at::Tensor head_matrix(const UnitTensors& head_unit) const;
  /// 0 if tied, L + 1 if not.
  [[nodiscard]] int head_unit() const;
  /// A named tensor inside a unit's vectors, in its shape.
  [[nodiscard]] at::Tensor view(int unit, const UnitTensors& tensors, std::string_view name) const;

  /// Everything from the ledger, as "saved", `name` and "workspace". Bytes: plan_saved_bytes,
  /// plan_block_grads_bytes, plan_workspace_bytes.
  [[nodiscard]] BlockSaved allocate_saved(Ledger& ledger) const;
  [[nodiscard]] BlockGrads allocate_block_grads(Ledger& ledger, const char* name) const;
  [[nodiscard]] Workspace allocate_workspace(Ledger& ledger, bool with_head = true) const;

  [[nodiscard]] const ParamLayout& layout() const { return layout_; }
  [[nodiscard]] const GptShape& shape() const { return shape_; }

 private:
  [[nodiscard]] at::Tensor view(int unit, const UnitTensors& tensors, std::size_t index) const;
  void forward_to_gelu(int unit, const UnitTensors& params, const at::Tensor& x, BlockSaved& s,
                       at::Tensor& gelu) const;
  [[nodiscard]] BlockSaved allocate_block(Ledger& ledger, Purpose purpose, const char* name,
                                          bool with_gelu) const;
  void head_norm(const UnitTensors& ln_f, const at::Tensor& x, Workspace& ws) const;

  GptShape shape_;
  ParamLayout layout_;
  std::shared_ptr<const Ops> ops_;
};

/// Deterministic GPT-2 initialisation of one unit: a function of (seed, tensor name, element), so that it
/// depends neither on the world nor on the layout. Normal(0, 0.02), residual projections scaled by
/// 1/sqrt(2 L); biases 0, norms 1; padding rows and gaps 0.
void init_unit(const ParamLayout& layout, int unit, std::uint64_t seed, const UnitTensors& params);
/// The same of one slice: `out` [range.size()] is that range of the unit's segment. No rank needs the whole
/// unit.
void init_slice(const ParamLayout& layout, int unit, Segment segment, Range range, std::uint64_t seed,
                const at::Tensor& out);

}  // namespace sc
