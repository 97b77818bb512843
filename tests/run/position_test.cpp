// What a checkpoint knows of a run besides the strategy's state, and takes out of one.
#include <ATen/ops/zeros.h>

#include "common/run/resume.h"
#include "common/run/saver.h"
#include "tests/support/harness.h"

namespace sc::detail {
namespace {

// Every number is another one.
StepScalars scaled() {
  StepScalars scalars = test::step_scalars(1e-3, 19);
  scalars.loss_scale = at::full({}, 4096.0, at::kFloat);
  scalars.scaler_state = at::zeros({2}, at::kLong);
  scalars.scaler_state[0].fill_(37), scalars.scaler_state[1].fill_(5);
  return scalars;
}

TEST(Position, OfEveryNumberIsItsOwn) {
  const Position position = position_of(scaled(), 23, 3);
  EXPECT_EQ(position.step, 23);
  EXPECT_EQ(position.updates, 19) << "four steps were skipped";
  EXPECT_EQ(position.skips_in_a_row, 3);
  EXPECT_EQ(position.scaler, (checkpoint::LossScaler{.scale = 4096, .good_steps = 37, .overflows = 5}));
  EXPECT_EQ(position_of(test::step_scalars(1e-3, 8), 9, 0).scaler, checkpoint::LossScaler{}) << "no fp16";
}

TEST(Position, ComesBackFromAManifest) {
  const Position position = position_of(scaled(), 23, 3);
  checkpoint::Manifest saved;
  saved.step = position.step, saved.updates = position.updates, saved.scaler = position.scaler;
  StepScalars scalars = test::step_scalars(0, 0);
  scalars.loss_scale = at::full({}, 1.0, at::kFloat);
  scalars.scaler_state = at::zeros({2}, at::kLong);
  restore_scalars(saved, scalars);
  const Position again = position_of(scalars, saved.step, 0);
  EXPECT_EQ(again.updates, position.updates);
  EXPECT_EQ(again.scaler, position.scaler);
  const StepScalars unscaled = test::step_scalars(0, 0);
  restore_scalars(saved, unscaled);
  EXPECT_EQ(unscaled.step.item<std::int64_t>(), 19);
  EXPECT_FALSE(unscaled.loss_scale.defined());
}

}  // namespace
}  // namespace sc::detail
