// GPT-2 as one tensor rank computes it: pure functions of flat vectors that ParamLayout has cut, each from
// one collective to the next. What is cut meets what is whole in two places of a half block: tokens are
// gathered before its two matrices, and summed behind them.
//   N = B T tokens of a micro-batch, n of them this rank's own (part_plan.h). rows: [n, d] of its tokens;
//   gathered: [N, d] of all, in the workload's dtype.
// Source: arXiv:1909.08053 section 3 (the cut), arXiv:2205.05198 section 4.2 (tokens split between the
// halves).
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "common/model/activation_plan.h"
#include "common/model/gpt.h"
#include "common/model/part_plan.h"

namespace sc {

/// A block is two halves of one form: norm, two matrices of which the first has its rows cut and the second
/// its columns, and the sum added to what came in.
enum class Half : std::uint8_t { attention, mlp };

/// Rows of this rank's tokens within those of all, which its matrices read: gathered in place. Where tokens
/// are whole both are one.
struct GatheredRows {
  at::Tensor all, own;  // [N, d], [n, d]
};

/// What one half's norm leaves. `rows` are the micro-batch's only ones, unless a run keeps them: the next
/// norm overwrites them, and backward makes them again from the norm's input.
struct PartNorm {
  GatheredRows rows;
  at::Tensor mean, rstd;  // [n] fp32
};

/// What backward of a block needs from its forward. With activations = recompute only `x` is set.
struct PartSaved {
  at::Tensor x;  // [n, d] handle of the block's input
  std::array<PartNorm, 2> norms;
  at::Tensor mid;            // [n, d] between the halves
  at::Tensor qkv, lse, att;  // [N, 3 a], [B, h, T] fp32, [N, a]
  at::Tensor fc, gelu;       // [N, m] before and after GELU
  [[nodiscard]] PartNorm& norm(Half half) { return norms[static_cast<std::size_t>(half)]; }
  [[nodiscard]] const PartNorm& norm(Half half) const { return norms[static_cast<std::size_t>(half)]; }
};

/// What backward of a block leaves for its weights.
struct PartGrads {
  at::Tensor fc, qkv, att;  // [N, m], [N, 3 a], [N, a]
  at::Tensor vectors;       // [6 d + 3 a + m] fp32
};

/// Makes [N, d] that all ranks write to or read from, counted as said: in a window, where the backend has
/// such.
using SharedRows = std::function<at::Tensor(Purpose purpose, const char* name, Elements elements)>;

/// What one micro-batch keeps from forward for backward, of a run of blocks.
struct PartActivations {
  at::Tensor input;              // [n, d] of the first block
  std::vector<at::Tensor> x;     // [n, d] by block: its output
  std::vector<PartSaved> saved;  // by block; empty ones where all is computed again
};

/// What forward and backward of one micro-batch at a time write to.
struct PartWork {
  PartSaved recomputed;  // of one block; recompute_gelu: gelu alone
  PartGrads grads;
  GatheredRows norms;                     // shared by all norms that are not kept
  std::array<GatheredRows, 2> gradients;  // of rows: those read, those written
  at::Tensor partial;                     // [N, d] this rank's summand
  at::Tensor sum;                         // [n, d]; `partial` itself where tokens are whole
  PartNorm head;                          // ln_f's
  at::Tensor logits, statistics,
      of_all;  // [chunk, v]; [chunk, 2], [t, chunk, 2] fp32; undefined without a head
};

/// Both, of all blocks. Bytes: plan_part_buffers.
struct PartBuffers : PartActivations, PartWork {
  /// shared: null takes those from the ledger, too.
  PartBuffers(const GptShape& shape, const PartSizes& sizes, bool kept, Ledger& ledger,
              const SharedRows& shared = {});
};

/// Of a pipeline's stage: sets of activations for the micro-batches that are under way. Bytes:
/// plan_part_stage.
struct PartStageBuffers {
  /// shape: grads counts those that travel between stages; pending 0.
  PartStageBuffers(const GptShape& shape, const PartSizes& sizes, const BufferShape& of, Ledger& ledger,
                   const SharedRows& shared = {});
  std::vector<at::Tensor> inputs, grads;  // [n, d]
  std::vector<PartActivations> sets;
  PartWork work;
};

class GptParts {
 public:
  GptParts(const GptShape& shape, const ParamLayout& layout, const PartSizes& sizes);

  /// partial [N, d] = rows of my vocabulary, zeros elsewhere: summed over ranks it is wte[tokens].
  void embed(const UnitTensors& params0, const at::Tensor& tokens, at::Tensor& partial) const;
  /// x = sum + wpe.
  void positions(const UnitTensors& params0, const at::Tensor& sum, at::Tensor& x) const;

  /// Of saved.x, or for the MLP of saved.mid: where no sum came before it, and for backward again.
  void norm(int unit, Half half, const UnitTensors& params, PartSaved& saved) const;
  /// From gathered norms to what my heads read, or my columns of the MLP; from these to a summand of all
  /// tokens.
  ///   gelu  [N, m] where GELU's output goes (saved's own, or a scratch)
  void first_product(int unit, Half half, const UnitTensors& params, const at::Tensor& norms,
                     PartSaved& saved, at::Tensor& gelu) const;
  void second_product(int unit, Half half, const UnitTensors& params, PartSaved& saved,
                      const at::Tensor& gelu, at::Tensor& partial) const;
  void gelu_again(const PartSaved& saved, at::Tensor& gelu) const;
  /// What follows a half's sum, all [n, d]: out = (in + bias) + sum, which the next half begins with, or the
  /// head; and the norm of that (null: nothing follows here).
  ///   params  by unit
  void add_norm(int unit, Half half, std::span<const UnitTensors> params, const at::Tensor& in,
                const at::Tensor& sum, at::Tensor& out, PartNorm* norm) const;

  /// gradient [N, d], of the half's output -> partial, a summand of that of its norm's output.
  void backward_to_norm(int unit, Half half, const UnitTensors& params, const PartSaved& saved,
                        const at::Tensor& gradient, PartGrads& left, at::Tensor& partial) const;
  /// Of the half's second matrix, and of its first.
  void second_weights(int unit, Half half, const PartSaved& saved, const at::Tensor& gelu,
                      const at::Tensor& gradient, const UnitTensors& grads, Write write) const;
  void first_weights(int unit, Half half, const at::Tensor& norms, const PartGrads& left,
                     const UnitTensors& grads, Write write) const;
  /// out = the norm's gradient + grad_y, which reaches the half's input past it; all [n, d].
  void norm_backward(int unit, Half half, const UnitTensors& params, const PartSaved& saved,
                     const at::Tensor& sum, const at::Tensor& grad_y, PartGrads& left, at::Tensor& out) const;
  /// Norms and biases, of which the replicated ones are of this rank's tokens alone.
  void vectors(int unit, const PartGrads& left, const UnitTensors& grads, Write write) const;

  void head_norm(const UnitTensors& ln_f, const at::Tensor& x, PartWork& work) const;
  /// Logits of rows [c, d] in my columns, and their statistics.
  void logits(const at::Tensor& head, const at::Tensor& rows, at::Tensor& logits,
              at::Tensor& statistics) const;
  /// With those of all ranks: loss and tokens of targets in my columns, and the logits' gradient if `scale`
  /// is defined.
  void loss(at::Tensor& logits, const at::Tensor& targets, const at::Tensor& of_all, const at::Tensor& scale,
            HeadResult& result) const;
  void head_products(const at::Tensor& head, const at::Tensor& logits, const at::Tensor& rows,
                     at::Tensor& grad_head, Write write, at::Tensor& partial) const;
  void head_norm_backward(const UnitTensors& ln_f, const at::Tensor& x, const at::Tensor& sum,
                          const UnitTensors& grads, Write write, PartWork& work, at::Tensor& out) const;

  /// gradient [N, d]: onto rows of my vocabulary; rows [n, d]: onto positions.
  void embed_backward(const at::Tensor& tokens, const at::Tensor& gradient, const UnitTensors& grads0,
                      Write write) const;
  void positions_backward(const at::Tensor& rows, const UnitTensors& grads0, Write write) const;

  /// The head's matrix, of unit 0 (tied) or the last one, [v, d].
  [[nodiscard]] at::Tensor head_matrix(const UnitTensors& head_unit) const;
  [[nodiscard]] int head_unit() const { return layout_.config().tied ? 0 : layout_.last_unit(); }
  [[nodiscard]] const ParamLayout& layout() const { return layout_; }
  [[nodiscard]] const PartSizes& sizes() const { return sizes_; }

 private:
  [[nodiscard]] at::Tensor view(int unit, const UnitTensors& tensors, std::size_t index) const;
  [[nodiscard]] Range real_columns() const;
  [[nodiscard]] at::Tensor by_head(const at::Tensor& t) const;   // [B, T, h, D]
  [[nodiscard]] at::Tensor packed(const at::Tensor& qkv) const;  // [B, T, 3, h, D]

  ParamLayout layout_;
  PartSizes sizes_;
  std::shared_ptr<const Ops> ops_;
};

}  // namespace sc
