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

}  // namespace sc
