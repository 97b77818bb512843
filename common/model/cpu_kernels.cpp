#include "common/model/cpu_kernels.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "common/base/clones.h"

namespace sc {
namespace {

// 8 numbers at once: one register with AVX2 and later, which GCC splits into halves without it. Written by
// hand, because only some compiler versions vectorise loops with comparisons. Helpers take references and are
// inlined into each clone.
constexpr std::int64_t kLanes = 8;
using Lanes = float __attribute__((vector_size(4 * kLanes)));
using Bits = std::uint32_t __attribute__((vector_size(4 * kLanes)));

// Loads `count` numbers, at most kLanes, and sets the other lanes to 0.
[[gnu::always_inline]] inline void load(const float* from, std::int64_t count, Lanes& v) {
  if (count < kLanes) v = Lanes{};
  std::memcpy(&v, from, static_cast<std::size_t>(count) * sizeof(float));
}
[[gnu::always_inline]] inline void store(const Lanes& v, std::int64_t count, float* to) {
  std::memcpy(to, &v, static_cast<std::size_t>(count) * sizeof(float));
}

// Calls f(first, count) over [0, n); count is the constant kLanes in all calls but the last.
template <class F>
[[gnu::always_inline]] inline void for_lanes(std::int64_t n, const F& f) {
  const std::int64_t whole = n / kLanes * kLanes;
  for (std::int64_t i = 0; i < whole; i += kLanes) f(i, kLanes);
  if (whole < n) f(whole, n - whole);
}

// Replaces x by exp(x), accurate to 2 units in the last place: x = n ln 2 + r with |r| <= ln 2 / 2, a
// polynomial in r, and n added to the exponent. NaN stays NaN; x is clamped to the range with normal results.
// Source: coefficients of Cephes' expf (S. Moshier).
[[gnu::always_inline]] inline void exp_lanes(Lanes& x) {
  const Lanes min = Lanes{} - 87.0F, max = Lanes{} + 88.0F;
  x = x < min ? min : x;
  x = x > max ? max : x;
  const float round = 12582912.0F;  // 1.5 * 2^23: adding it rounds to an integer, found in the low bits
  const Lanes shifted = x * 1.44269504088896341F + round;
  const Lanes n = shifted - round;
  const Lanes r = (x - n * 0.693359375F) + n * 2.12194440e-4F;  // ln 2 in two parts
  Lanes p = r * 1.9875691500e-4F + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * (r * r) + r + 1.0F;
  x = (Lanes)((Bits)p + ((Bits)shifted << 23));
}

// gelu(x) = x (1 + tanh(u)) / 2 = x gate, gate = 1 / (1 + exp(-2 u)), u = sqrt(2 / pi) (x + 0.044715 x^3).
constexpr float kTwoRoot = 1.5957691216057308F;  // 2 sqrt(2 / pi)
constexpr float kCube = 0.044715F;
[[gnu::always_inline]] inline void gelu_gate(const Lanes& x, Lanes& gate) {
  gate = -kTwoRoot * (x + kCube * x * x * x);
  exp_lanes(gate);
  gate = 1.0F / (1.0F + gate);
}

}  // namespace

SC_CLONES("arch=x86-64-v3", "default") void gelu_f32(std::int64_t n, const float* x, float* y) {
  for_lanes(
      n, [&](std::int64_t i, std::int64_t count) __attribute__((always_inline)) {
        Lanes v, gate;
        load(x + i, count, v);
        gelu_gate(v, gate);
        v *= gate;
        store(v, count, y + i);
      });
}

SC_CLONES("arch=x86-64-v3", "default") void gelu_backward_f32(std::int64_t n, const float* x, float* grad) {
  for_lanes(
      n, [&](std::int64_t i, std::int64_t count) __attribute__((always_inline)) {
        Lanes v, g, gate;
        load(x + i, count, v);
        load(grad + i, count, g);
        gelu_gate(v, gate);
        const Lanes slope = kTwoRoot + (3.0F * kCube * kTwoRoot) * v * v;  // derivative of 2 u
        g *= gate + v * slope * (gate - gate * gate);
        store(g, count, grad + i);
      });
}

namespace {

// The largest of the n numbers in `row`; a NaN may be skipped.
SC_CLONES("arch=x86-64-v3", "default") float row_max(std::int64_t n, const float* row) {
  float max = row[0];
  Lanes lanes = Lanes{} + max;
  const std::int64_t whole = n / kLanes * kLanes;
  for (std::int64_t i = 0; i < whole; i += kLanes) {
    Lanes v;
    load(row + i, kLanes, v);
    lanes = v > lanes ? v : lanes;
  }
  for (std::int64_t j = 0; j < kLanes; ++j) max = std::max(max, lanes[j]);
  for (std::int64_t i = whole; i < n; ++i) max = std::max(max, row[i]);
  return max;
}

// The sum of exp(x - max) over a row of x; `keep(exponentials, count, first)` receives the exponentials.
template <class Keep>
[[gnu::always_inline]] inline double sum_of_exponentials(std::int64_t n, float max, const float* row,
                                                         const Keep& keep) {
  Lanes lanes = Lanes{};
  double sum = 0;
  for_lanes(
      n, [&](std::int64_t i, std::int64_t count) __attribute__((always_inline)) {
        Lanes v;
        load(row + i, count, v);
        v -= max;
        exp_lanes(v);
        keep(v, count, i);
        if (count == kLanes) {
          lanes += v;
        } else {
          for (std::int64_t j = 0; j < count; ++j) sum += v[j];
        }
      });
  for (std::int64_t j = 0; j < kLanes; ++j) sum += lanes[j];
  return sum;
}

// Replaces every x of a row by exp(x - max) and returns their sum.
SC_CLONES("arch=x86-64-v3", "default") double row_exp(std::int64_t n, float max, float* row) {
  return sum_of_exponentials(
      n, max, row, [&](const Lanes& v, std::int64_t count, std::int64_t i) __attribute__((always_inline)) {
        store(v, count, row + i);
      });
}

SC_CLONES("arch=x86-64-v3", "default") double row_exp_sum(std::int64_t n, float max, const float* row) {
  return sum_of_exponentials(n, max, row,
                             [](const Lanes&, std::int64_t, std::int64_t) __attribute__((always_inline)){});
}

SC_CLONES("arch=x86-64-v3", "default") void row_scale(std::int64_t n, float factor, float* row) {
  for (std::int64_t i = 0; i < n; ++i) row[i] *= factor;
}

}  // namespace

namespace {

// A row's sum of exp(logit - max) over the whole vocabulary, with the maximum of its logits.
struct RowSum {
  float max = 0;
  double sum = 0;
};

// Sums the loss over rows, each with columns [first, first + logits.vocab) of the vocabulary. total(row,
// number) returns the row's RowSum; with a scale it leaves exp(logit - max) in the row.
template <class Total>
CrossEntropySums over_rows(const LogitRows& logits, const RowTargets& wanted, const float* scale,
                           const Total& total) {
  CrossEntropySums sums;
  for (std::int64_t r = 0; r < logits.rows; ++r) {
    float* row = logits.data + r * logits.stride;
    if (wanted.targets[r] < 0) {
      if (scale != nullptr) std::fill(row, row + logits.stride, 0.0F);
      continue;
    }
    const std::int64_t target = wanted.targets[r] - wanted.first;
    const bool here = 0 <= target && target < logits.vocab;
    const float picked = here ? row[target] : 0.0F;
    const RowSum of = total(row, r);
    if (here) {
      sums.loss += std::log(of.sum) + (static_cast<double>(of.max) - static_cast<double>(picked));
      ++sums.tokens;
    }
    if (scale == nullptr) continue;
    row_scale(logits.vocab, static_cast<float>(*scale / of.sum), row);
    if (here) row[target] -= *scale;
    std::fill(row + logits.vocab, row + logits.stride, 0.0F);
  }
  return sums;
}

// A row's RowSum over all ranks, added in rank order.
RowSum of_all(const SoftmaxParts& parts, std::int64_t rows, std::int64_t row) {
  const auto of = [&](std::int64_t rank) { return parts.statistics + 2 * (rank * rows + row); };
  float max = of(0)[0], sum = 0;
  for (std::int64_t rank = 1; rank < parts.ranks; ++rank) max = std::max(max, of(rank)[0]);
  for (std::int64_t rank = 0; rank < parts.ranks; ++rank) sum += of(rank)[1] * std::exp(of(rank)[0] - max);
  return {max, sum};
}

}  // namespace

CrossEntropySums cross_entropy_f32(const LogitRows& logits, const std::int64_t* targets, const float* scale) {
  return over_rows(logits, {targets, 0}, scale, [&](float* row, std::int64_t) {
    const float max = row_max(logits.vocab, row);
    return RowSum{max, row_exp(logits.vocab, max, row)};
  });
}

void softmax_part_f32(const LogitRows& logits, float* statistics) {
  for (std::int64_t r = 0; r < logits.rows; ++r) {
    const float* row = logits.data + r * logits.stride;
    const bool none = logits.vocab == 0;
    const float max = none ? -std::numeric_limits<float>::infinity() : row_max(logits.vocab, row);
    statistics[2 * r] = max;
    statistics[2 * r + 1] = none ? 0.0F : static_cast<float>(row_exp_sum(logits.vocab, max, row));
  }
}

CrossEntropySums softmax_gradient_f32(const LogitRows& logits, const RowTargets& wanted,
                                      const SoftmaxParts& parts, const float* scale) {
  return over_rows(logits, wanted, scale, [&](float* row, std::int64_t number) {
    const RowSum of = of_all(parts, logits.rows, number);
    if (scale != nullptr) row_exp(logits.vocab, of.max, row);
    return of;
  });
}

}  // namespace sc
