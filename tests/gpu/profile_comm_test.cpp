#include "common/gpu/profile_comm.h"

#include <gtest/gtest.h>

#include "common/comm/local_communicator.h"

namespace sc {
namespace {

using namespace std::chrono_literals;

OpSpan span(Phase phase, std::int64_t step, CommKind kind, std::optional<std::chrono::milliseconds> lasts) {
  OpSpan op;
  op.phase = phase;
  op.step = step;
  op.op = {kind, DType::bf16, Elements(1000)};
  op.sent = Bytes(2000);
  if (lasts) {
    op.began = OpSpan::Clock::time_point{} + 5ms;
    op.ended = *op.began + *lasts;
  }
  return op;
}

TEST(ProfileComm, SumsTrainingStepsByKind) {
  std::vector<OpSpan> operations = {span(Phase::train, 4, CommKind::all_gather, 100ms),  // before the first
                                    span(Phase::train, 5, CommKind::all_gather, 3ms),
                                    span(Phase::train, 6, CommKind::all_gather, 4ms),
                                    span(Phase::train, 6, CommKind::reduce_scatter, 2ms),
                                    span(Phase::train, 6, CommKind::reduce_scatter, {}),
                                    span(Phase::eval, 6, CommKind::all_gather, 50ms)};
  operations.push_back(span(Phase::train, 6, CommKind::all_gather, 60ms));
  operations.back().ended.reset();  // the GPU has not come past its end
  const std::vector<ProfileCommRow> rows = communication_rows(operations, 5);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].kind, CommKind::reduce_scatter);
  EXPECT_DOUBLE_EQ(rows[0].milliseconds, 2);
  EXPECT_EQ(rows[0].calls, 1);
  EXPECT_EQ(rows[1].kind, CommKind::all_gather);
  EXPECT_DOUBLE_EQ(rows[1].milliseconds, 7);
  EXPECT_EQ(rows[1].calls, 2);
  EXPECT_EQ(rows[1].sent, Bytes(4000));
}

// Only waits of steps after the warm-up count, as means per step; in a world of one nobody waits.
TEST(ProfileComm, WaitsOfTheProfiledSteps) {
  std::vector<StepRecord> steps(kWarmupSteps + 2);
  for (std::size_t step = 0; step < steps.size(); ++step) {
    steps[step].step = static_cast<std::int64_t>(step);
    steps[step].waited_seconds = 0.001 * static_cast<double>(step);
  }
  for (const int ranks : {1, 2}) {
    LocalWorld world(ranks);
    RecordingCommunicator comm(world.communicator(Rank{0}));
    Profile profile;
    profile.steps = 2;
    add_communication(steps, CommPlan{}, comm, profile);
    EXPECT_DOUBLE_EQ(profile.waited_milliseconds, ranks == 1 ? 0 : kWarmupSteps + 0.5);
    EXPECT_TRUE(profile.communication.empty());
  }
}

}  // namespace
}  // namespace sc
