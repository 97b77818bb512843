#include "common/optim/grad_norm.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "common/base/check.h"
#include "common/optim/loss_scale.h"
#include "tests/support/answers.h"

namespace sc {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// A sum of n numbers in fp64 is exact to n 2^-53 of its size.
TEST(SumOfSquares, EqualsTheDefinition) {
  for (const std::int64_t n : {0, 1, 15, 16, 17, 1000, 65'535, 65'536, 65'537, 200'003}) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
      const at::Tensor x = at::randn({n}).to(type);
      const double want = x.to(at::kDouble).square().sum().item<double>();
      EXPECT_NEAR(sum_of_squares(x), want, 1e-10 * want) << n << " " << type;
    }
  }
}

// fp32 would have lost the ones: 1e8 + 1 = 1e8.
TEST(SumOfSquares, IsInDoublePrecision) {
  at::Tensor x = at::ones({1001});
  x[0] = 1e6F;
  EXPECT_EQ(sum_of_squares(x), 1e12 + 1000);
}

TEST(SumOfSquares, ThreadsDoNotChangeABit) {
  const at::Tensor x = at::randn({1'000'003});
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  const double one = sum_of_squares(x);
  for (const int threads : {2, 3}) {
    at::set_num_threads(threads);
    EXPECT_EQ(sum_of_squares(x), one);
  }
  at::set_num_threads(before);
}

TEST(SumOfSquares, RefusesOtherTypes) {
  EXPECT_THROW(sum_of_squares(at::zeros({4}, at::kLong)), InputError);
  EXPECT_THROW(sum_of_squares(at::zeros({8}).slice(0, 0, 8, 2)), InputError);
}

at::Tensor sums_of(double loss, double tokens, double squares) {
  at::Tensor sums = at::zeros({4}, at::kDouble);
  sums[kLossSum] = loss;
  sums[kTokens] = tokens;
  sums[kSquares] = squares;
  return sums;
}

TEST(StepSums, AddsSlices) {
  at::Tensor sums = sums_of(6, 4, 1);
  add_sums_of_squares(std::vector{at::full({3}, 2.0F), at::full({5}, 1.0F)}, sums);
  EXPECT_EQ(sums[kSquares].item<double>(), 1 + 12 + 5);
  EXPECT_EQ(mean_loss(sums), 1.5);
}

TEST(StepSums, FlagSaysWhetherLossAndSquaresAreFinite) {
  const auto flag = [](double loss, double squares) {
    at::Tensor sums = sums_of(loss, 1, squares);
    sums[kNonFinite] = 7;  // whatever was there
    finish_sums(sums);
    return sums[kNonFinite].item<double>();
  };
  EXPECT_EQ(flag(1, 1), 0);
  EXPECT_EQ(flag(kInf, 1), 1);
  EXPECT_EQ(flag(1, kInf), 1);
  EXPECT_EQ(flag(kNan, 1), 1);
  EXPECT_EQ(flag(1, kNan), 1);
}

struct Clipped {
  float norm, clip;
  std::int64_t step;  // 5 before
};
Clipped clipped(double squares, double max_norm) {
  const StepScalars s{{}, at::full({}, 5, at::kLong), at::zeros({}), at::zeros({})};
  at::Tensor sums = sums_of(1, 1, squares);
  finish_sums(sums);
  global_norm_and_clip(sums, max_norm, s);
  return {s.grad_norm.item<float>(), s.clip.item<float>(), s.step.item<std::int64_t>()};
}

TEST(Clip, ANonFiniteGradientIsNoUpdateAndIsNotCounted) {
  EXPECT_EQ(clipped(4, 1).step, 6);
  for (const double squares : {kInf, kNan}) {
    for (const double max_norm : {0.0, 1.0}) {
      EXPECT_EQ(clipped(squares, max_norm).clip, kNoUpdate);
      EXPECT_EQ(clipped(squares, max_norm).step, 5);
    }
  }
}

TEST(Clip, ScalesDownToTheLimitAndNeverUp) {
  test::expect_each<float>({{clipped(16, 1).norm, 4.0F},
                            {clipped(16, 1).clip, 0.25F},
                            {clipped(16, 4).clip, 1.0F},
                            {clipped(16, 100).clip, 1.0F},
                            {clipped(0, 1).clip, 1.0F}});
}

TEST(LossScale, StartsHalvesDoublesAndHasAFloor) {
  LossScale s;
  EXPECT_EQ(s.scale, 65536.0F);
  s.update(false);
  EXPECT_EQ(s.scale, 65536.0F);  // one overflow may be chance
  for (int i = 0; i < 999; ++i) s.update(true);
  s.update(false);  // the second since the last change, though not in a row
  EXPECT_EQ(s.scale, 32768.0F);
  for (int i = 0; i < 999; ++i) s.update(true);
  EXPECT_EQ(s.scale, 32768.0F);
  s.update(true);
  EXPECT_EQ(s.scale, 65536.0F);
  for (int i = 0; i < 100; ++i) s.update(false);
  EXPECT_EQ(s.scale, 1.0F);
}

TEST(LossScale, TheUpdateIsThatOfTheUnscaledGradient) {
  const StepScalars s{{},
                      at::full({}, 0, at::kLong),
                      at::zeros({}),
                      at::zeros({}),
                      at::full({}, 8.0, at::kFloat),
                      at::zeros({2}, at::kLong)};
  at::Tensor sums = sums_of(1, 1, 64 * 16);  // of a gradient with norm 4, times 8
  finish_sums(sums);
  global_norm_and_clip(sums, 1, s);
  EXPECT_EQ(s.grad_norm.item<float>(), 4.0F);
  EXPECT_EQ(s.clip.item<float>(), 0.25F / 8);
  EXPECT_EQ(s.scaler_state[0].item<std::int64_t>(), 1);
  for (int i = 0; i < 2; ++i) {
    sums = sums_of(1, 1, kInf);
    finish_sums(sums);
    global_norm_and_clip(sums, 1, s);
    EXPECT_EQ(s.clip.item<float>(), kNoUpdate);
  }
  EXPECT_EQ(s.loss_scale.item<float>(), 4.0F);
  EXPECT_EQ(s.step.item<std::int64_t>(), 1);
}

TEST(Clip, ZeroTurnsItOff) {
  EXPECT_EQ(clipped(16, 0).norm, 4.0F);
  EXPECT_EQ(clipped(16, 0).clip, 1.0F);
}

// The norm is rounded once, to the fp32 number nearest to the fp64 root.
TEST(Clip, RoundsTheNormOnce) { EXPECT_EQ(clipped(2, 1).norm, static_cast<float>(1.4142135623730951)); }

}  // namespace
}  // namespace sc
