#include "tests/support/model_states.h"

#include <gtest/gtest.h>

namespace sc {
namespace {

PrecisionConfig sixteen_bit() {
  PrecisionConfig precision;
  precision.dtype = precision.grad_dtype = precision.reduce_dtype = DType::bf16;
  return precision;
}

double gigabytes(WorldSize world, ZeroStage stage) {
  const Bytes bytes = model_states(Elements(7'500'000'000), world, stage, sixteen_bit());
  return static_cast<double>(bytes.value()) / 1e9;
}

// The example of arXiv:1910.02054, figure 1.
TEST(ModelStates, ThePapersSevenAndAHalfBillionOnSixtyFourRanks) {
  constexpr WorldSize kRanks{64};
  constexpr double kRounded = 0.05;  // the paper gives one decimal
  EXPECT_NEAR(gigabytes(kRanks, ZeroStage::none), 120, kRounded);
  EXPECT_NEAR(gigabytes(kRanks, ZeroStage::optimizer), 31.4, kRounded);
  EXPECT_NEAR(gigabytes(kRanks, ZeroStage::gradients), 16.6, kRounded);
  EXPECT_NEAR(gigabytes(kRanks, ZeroStage::parameters), 1.9, kRounded);
}

TEST(ModelStates, OneRankHoldsTheSameInEveryStage) {
  for (const ZeroStage stage : {ZeroStage::optimizer, ZeroStage::gradients, ZeroStage::parameters})
    EXPECT_EQ(gigabytes(WorldSize{1}, stage), gigabytes(WorldSize{1}, ZeroStage::none));
}

TEST(ModelStates, Fp32HasNoMasterAndSixteenBytesToo) {
  const Elements p(1000);
  EXPECT_EQ(model_states(p, WorldSize{10}, ZeroStage::none, {}), Bytes(16'000));
  EXPECT_EQ(model_states(p, WorldSize{10}, ZeroStage::optimizer, {}), Bytes(8'800));
  PrecisionConfig wide = sixteen_bit();
  wide.grad_dtype = DType::f32;
  EXPECT_EQ(model_states(p, WorldSize{10}, ZeroStage::none, wide), Bytes(18'000));
  EXPECT_EQ(model_states(p, WorldSize{10}, ZeroStage::gradients, wide), Bytes(2'000 + 1'600));
}

}  // namespace
}  // namespace sc
