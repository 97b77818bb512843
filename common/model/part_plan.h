// What one device or one tensor rank has of a micro-batch and of the model's sizes. No torch.
#pragma once

#include <vector>

#include "common/base/range.h"
#include "common/memory/plan.h"
#include "common/model/param_layout.h"

namespace sc {

/// The rows of activations outside the matrices. split: each tensor rank has a run of the micro-batch's
/// tokens (sequence parallelism, arXiv:2205.05198); whole: each has all tokens (arXiv:1909.08053).
enum class TokenShare { split, whole };

inline constexpr std::int64_t kFp32 = 4;  // bytes; statistics and sums are fp32 for every dtype

/// The sizes of one tensor rank, or of one device, which has everything. N = B T tokens of a micro-batch.
struct PartSizes {
  /// The sizes of a tensor rank.
  ///   Errors  InputError (exit 64) if the ranks cannot share the tokens evenly.
  PartSizes(const RunShape& run, const ParamLayout& layout, TokenShare share);
  explicit PartSizes(const RunShape& run);  // for one device

  std::int64_t B, T, N, d;
  Range tokens;                      // this rank's own tokens out of N
  std::int64_t heads, att;           // its heads, and their elements per token: att = heads x head_dim
  std::int64_t hidden;               // its columns of the MLP
  Range vocab;                       // its rows of the padded vocabulary
  std::int64_t chunk;                // rows of logits at a time
  std::int64_t ranks;                // the number of tensor ranks
  std::int64_t e;                    // bytes of an element of the workload's dtype
  std::vector<std::int64_t> starts;  // positions at which a row's runs of tokens begin, each of run() tokens
  [[nodiscard]] std::int64_t run() const { return T / static_cast<std::int64_t>(starts.size()); }
  [[nodiscard]] std::int64_t n() const { return tokens.size(); }
  [[nodiscard]] bool split() const { return n() < N; }
  /// The bytes of a tensor [N, d] in the workload's dtype.
  [[nodiscard]] std::int64_t slab() const { return e * N * d; }
};

}  // namespace sc
