// Tests the progress of a run that a checkpoint stores besides the strategy's state, and when it is taken.
#include <ATen/ops/zeros.h>

#include "common/run/resume.h"
#include "common/run/saver.h"
#include "lessons/01_data_parallel/data_parallel_plan.h"
#include "tests/storage/temp_dir.h"
#include "tests/support/fake_strategy.h"
#include "tests/support/harness.h"

namespace sc::detail {
namespace {

// Step scalars whose numbers all differ, so that a test notices swapped ones.
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

// A save first waits for an update's transfers, with --save-async on and off.
TEST(Saver, WaitsForWhatIsInFlight) {
  const c10::InferenceMode inference;
  const Workload w = test::odd_workload();
  const ParamLayout layout(w.model, WorldSize{1});
  const RunShape shape = test::shape_for(w, 1, 0, CommBackend::local);
  DataParallelPlans plans;
  const AnyLesson lesson{.info = {.name = "a test", .question = ""}, .plans = plans, .make = {}};
  const Launch launch{};
  const BatchPlan batch{};
  for (const bool async : {false, true}) {
    const test::TempDir dir;
    const std::unique_ptr<FileOps> ops = posix_file_ops(Syncing::skip);
    create_only(*ops, dir / "tokens")->append(as_bytes("tokens"));
    CommandLine line;
    line.checkpoints.every = 1, line.checkpoints.async = async;
    line.checkpoints.dir = (dir / "checkpoints").string();
    const TrainJob job{lesson, launch, line,  batch,
                       "",     "",     shape, run_plans_of(plans, shape, line.checkpoints)};
    test::FakeStrategy strategy;
    strategy.of_layout = &layout;
    std::vector<at::Tensor> units;
    for (int unit = 0; unit < layout.num_units(); ++unit) {
      const std::int64_t size = layout.unit(unit).sharded_size;
      units.push_back(at::zeros({size}, at::kFloat));
      strategy.slices.push_back(
          {Purpose::parameters, unit, Segment::sharded, {0, size}, in_tensor(units.back())});
    }
    strategy.in_flight_ends = [&units] {
      for (at::Tensor& unit : units) unit.fill_(7);
    };
    Ledger ledger(at::kCPU);
    World world(launch, ledger, {});
    WatchedFiles files(posix_file_ops(Syncing::skip), world, 30);
    Saver saver({job, strategy, world.comm(), ledger, files, dir / "tokens", {}});
    Position position;
    position.step = 3;
    saver.save(position);
    saver.settle(true);
    checkpoint::Reader reader(*ops, dir / "checkpoints" / checkpoint::generation_name(3));
    const checkpoint::Key key{"ln_f.weight", "parameters"};
    std::vector<float> read(static_cast<std::size_t>(reader.numel(key.tensor)));
    reader.read(key, {0, std::ssize(read)}, std::as_writable_bytes(std::span(read)));
    EXPECT_EQ(read, std::vector<float>(read.size(), 7)) << (async ? "copied" : "written at once");
  }
}

}  // namespace
}  // namespace sc::detail
