// What one tensor rank holds of a micro-batch beside its parameters, from formulas, not from the allocating
// functions (gpt_parts.h). No torch.
#pragma once

#include "common/base/range.h"
#include "common/memory/plan.h"
#include "common/model/activation_plan.h"
#include "common/model/param_layout.h"

namespace sc {

/// The rows of activations between a block's halves, where a tensor rank has no part of a matrix. split: each
/// has a run of the micro-batch's tokens (sequence parallelism, arXiv:2205.05198); whole: each has all
/// (arXiv:1909.08053).
enum class TokenShare { split, whole };

/// Sizes of one tensor rank. N = B T tokens of a micro-batch.
struct PartSizes {
  ///   Errors  InputError (exit 64): the ranks cannot share the tokens evenly.
  PartSizes(const RunShape& run, const ParamLayout& layout, TokenShare share);

  std::int64_t B, T, N, d;
  Range tokens;             // of the N: this rank's own
  std::int64_t heads, att;  // its heads of attention, and their elements a token: att = heads x head_dim
  std::int64_t hidden;      // its columns of the MLP
  Range vocab;              // its rows of the padded vocabulary
  std::int64_t chunk;       // rows of logits at a time
  std::int64_t ranks;       // that share all this
  [[nodiscard]] std::int64_t n() const { return tokens.size(); }
  [[nodiscard]] bool split() const { return n() < N; }
  /// Gradients of a block's vectors, fp32: six of d, qkv's and fc's biases.
  [[nodiscard]] std::int64_t vectors() const { return 6 * d + 3 * att + hidden; }
};

/// Adds what `lanes` PartBuffers take from the ledger, by formula.
///   kept  what the halves' norms gathered stays for backward
void plan_part_buffers(const RunShape& run, const PartSizes& sizes, bool kept, std::int64_t lanes,
                       MemoryPlan& plan);

/// The same of PartStageBuffers, whose blocks gather their norms again.
void plan_part_stage(const RunShape& run, const PartSizes& sizes, const BufferShape& of, MemoryPlan& plan);

}  // namespace sc
