// fp32 loops of the CPU, where ATen needs several passes, fresh memory or a slower tanh. No torch.
//   Measured on one thread of an AMD EPYC, 256 x 512 elements: GELU 219 -> 77 us, its backward 285 -> 103 us;
//   cross entropy of 256 x 384 logits with gradient 140 -> 44 us, and no temporaries. Each is compiled for
//   AVX2 with FMA and for plain x86-64, and chosen at start.
#pragma once

#include <cstdint>

namespace sc {

/// y = gelu(x) in its tanh form. y may be x.
void gelu_f32(std::int64_t n, const float* x, float* y);
/// grad *= gelu'(x).
void gelu_backward_f32(std::int64_t n, const float* x, float* grad);

/// What cross_entropy_f32 adds up over its rows.
struct CrossEntropySums {
  double loss = 0;          // nats
  std::int64_t tokens = 0;  // targets >= 0
};

/// Rows of logits in memory.
struct LogitRows {
  std::int64_t rows = 0;
  std::int64_t vocab = 0;   // columns that count
  std::int64_t stride = 0;  // columns in memory
  float* data = nullptr;
};

/// Cross entropy of each row with its target.
///   scale  null: the loss alone, logits are used up; otherwise they become (softmax - onehot) * *scale, zero
///          in the columns from `vocab` on and in rows whose target is < 0.
CrossEntropySums cross_entropy_f32(const LogitRows& logits, const std::int64_t* targets, const float* scale);

/// Of a vocabulary that several ranks share: maximum and sum of exp(logit - maximum) of each row's columns
/// here, statistics [rows, 2]; -inf and 0 where `vocab` is 0. The logits stay.
void softmax_part_f32(const LogitRows& logits, float* statistics);

/// Targets by row, and the number of the first column here.
struct RowTargets {
  const std::int64_t* targets = nullptr;
  std::int64_t first = 0;
};
/// statistics [ranks, rows, 2] as softmax_part_f32 leaves them.
struct SoftmaxParts {
  std::int64_t ranks = 1;
  const float* statistics = nullptr;
};
/// cross_entropy_f32 of the columns here; rows whose target is elsewhere count there.
CrossEntropySums softmax_gradient_f32(const LogitRows& logits, const RowTargets& wanted,
                                      const SoftmaxParts& parts, const float* scale);

}  // namespace sc
