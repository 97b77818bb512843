#include "common/optim/lr_schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <tuple>

namespace sc {
namespace {

OptimConfig optim_of(LrSchedule schedule, std::int64_t warmup) {
  OptimConfig optim;
  optim.lr = 3e-4;
  optim.schedule = schedule;
  optim.warmup_steps = warmup;
  optim.min_lr_fraction = 0.1;
  return optim;
}

using Case = std::tuple<LrSchedule, int, int>;  // schedule, warm-up, steps

class Schedule : public ::testing::TestWithParam<Case> {
 protected:
  OptimConfig optim = optim_of(std::get<0>(GetParam()), std::get<1>(GetParam()));
  std::int64_t warmup = std::get<1>(GetParam()), steps = std::get<2>(GetParam());
  double at(std::int64_t step) const { return learning_rate(optim, step, steps); }
};

TEST_P(Schedule, WarmUpIsALineFromOneStepToThePeak) {
  for (std::int64_t step = 0; step < warmup; ++step) {
    EXPECT_DOUBLE_EQ(at(step), optim.lr * static_cast<double>(step + 1) / static_cast<double>(warmup));
  }
}

TEST_P(Schedule, EndsWhereItShould) {
  const double end = optim.schedule == LrSchedule::constant ? optim.lr : optim.lr * optim.min_lr_fraction;
  EXPECT_NEAR(at(steps - 1), end, 1e-12 * optim.lr);
}

TEST_P(Schedule, StaysBetweenItsEndsAndNeverRisesAfterWarmUp) {
  for (std::int64_t step = warmup; step < steps; ++step) {
    EXPECT_LE(at(step), optim.lr * (1 + 1e-12));
    EXPECT_GE(at(step), optim.lr * optim.min_lr_fraction * (1 - 1e-12));
    if (step > warmup) {
      EXPECT_LE(at(step), at(step - 1) * (1 + 1e-12)) << step;
    }
  }
}

// No step changes the rate more than the steepest slope: during warm-up 1 / warmup of the peak, then pi / 2
// (a cosine) of the way over its steps.
TEST_P(Schedule, HasNoJumps) {
  const double way = optim.lr * (1 - optim.min_lr_fraction);
  const double down = way * std::numbers::pi / 2 / static_cast<double>(steps - 1 - warmup);
  const double up = warmup > 0 ? optim.lr / static_cast<double>(warmup) : 0;
  for (std::int64_t step = 1; step < steps; ++step) {
    EXPECT_LE(at(step) - at(step - 1), up * (1 + 1e-9)) << step;
    EXPECT_LE(at(step - 1) - at(step), down * (1 + 1e-9)) << step;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Schedule,
                         ::testing::Combine(::testing::Values(LrSchedule::cosine, LrSchedule::linear,
                                                              LrSchedule::constant),
                                            ::testing::Values(0, 1, 20), ::testing::Values(23, 200)));

TEST(LearningRate, IsHalfwayInTheMiddle) {
  const double middle = 0.5 * (1 + 0.1) * 3e-4;
  EXPECT_NEAR(learning_rate(optim_of(LrSchedule::cosine, 10), 60, 111), middle, 1e-15);
  EXPECT_NEAR(learning_rate(optim_of(LrSchedule::linear, 10), 60, 111), middle, 1e-15);
  EXPECT_EQ(learning_rate(optim_of(LrSchedule::constant, 10), 60, 111), 3e-4);
}

// After a quarter of the way a cosine has fallen less than a line.
TEST(LearningRate, CosineIsAboveTheLineInItsFirstHalf) {
  const double quarter = 0.5 * (1 + std::cos(std::numbers::pi / 4));
  EXPECT_NEAR(learning_rate(optim_of(LrSchedule::cosine, 0), 25, 101), 3e-4 * (0.1 + 0.9 * quarter), 1e-15);
  EXPECT_NEAR(learning_rate(optim_of(LrSchedule::linear, 0), 25, 101), 3e-4 * (0.1 + 0.9 * 0.75), 1e-15);
}

TEST(LearningRate, KnowsRunsShorterThanTheirWarmUp) {
  const OptimConfig optim = optim_of(LrSchedule::cosine, 20);
  for (std::int64_t step = 0; step < 5; ++step) {
    EXPECT_DOUBLE_EQ(learning_rate(optim, step, 5), optim.lr * static_cast<double>(step + 1) / 20);
  }
}

// A run that continues past its last step keeps the final rate.
TEST(LearningRate, StaysAtTheEnd) {
  const OptimConfig optim = optim_of(LrSchedule::linear, 2);
  EXPECT_NEAR(learning_rate(optim, 50, 10), optim.lr * 0.1, 1e-18);
}

}  // namespace
}  // namespace sc
