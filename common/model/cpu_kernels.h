// fp32 loops for the CPU, used where ATen needs several passes, fresh memory or a slower tanh. No torch.
//   Measured on one thread of an AMD EPYC, 256 x 512 elements: GELU 219 -> 77 us, its backward 285 -> 103 us;
//   cross entropy of 256 x 384 logits with gradient 140 -> 44 us, and no temporaries. On x86-64 each is
//   compiled for AVX2 with FMA and for every processor, and chosen at start.
#pragma once

#include <cstdint>

namespace sc {

/// y [n] = gelu(x [n]) in its tanh form. y may be x.
void gelu_f32(std::int64_t n, const float* x, float* y);
/// Multiplies grad [n] by gelu'(x [n]), in place.
void gelu_backward_f32(std::int64_t n, const float* x, float* grad);

struct CrossEntropySums {
  double loss = 0;          // in nats
  std::int64_t tokens = 0;  // number of targets >= 0
};

struct LogitRows {
  std::int64_t rows = 0;
  std::int64_t vocab = 0;   // columns that belong to the vocabulary
  std::int64_t stride = 0;  // distance between rows, in elements
  float* data = nullptr;
};

/// Cross entropy of each row with its target.
///   scale  null: only the loss is computed, and logits are overwritten; otherwise logits become (softmax -
///          onehot) * *scale, zero in the columns from `vocab` on and in rows whose target is < 0.
CrossEntropySums cross_entropy_f32(const LogitRows& logits, const std::int64_t* targets, const float* scale);

/// Where ranks share the vocabulary, each row's maximum and sum of exp(logit - maximum) over this rank's
/// columns, as statistics [rows, 2]; -inf and 0 if it has no column. Logits are not changed.
void softmax_part_f32(const LogitRows& logits, float* statistics);

struct RowTargets {
  const std::int64_t* targets = nullptr;
  std::int64_t first = 0;
};
/// The statistics [ranks, rows, 2] of all ranks, as softmax_part_f32 leaves them on each.
struct SoftmaxParts {
  std::int64_t ranks = 1;
  const float* statistics = nullptr;
};
/// cross_entropy_f32 over this rank's columns of the vocabulary; a row counts where its target is.
CrossEntropySums softmax_gradient_f32(const LogitRows& logits, const RowTargets& wanted,
                                      const SoftmaxParts& parts, const float* scale);

}  // namespace sc
