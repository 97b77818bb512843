#include "common/config/batch_plan.h"

#include <gtest/gtest.h>

#include "tests/config/support.h"

namespace sc {
namespace {

BatchConfig batch(std::int64_t global, std::int64_t micro) {
  return {.sequence = 256, .global = global, .micro = micro};
}

TEST(BatchPlan, EveryWholeDivisionIsAccepted) {
  for (std::int64_t micro = 1; micro <= 4; ++micro) {
    for (std::int64_t world = 1; world <= 6; ++world) {
      for (std::int64_t accumulation = 1; accumulation <= 5; ++accumulation) {
        const BatchPlan plan =
            plan_batch(batch(micro * world * accumulation, micro), {.mesh = Mesh(WorldSize(world))}, {});
        EXPECT_EQ(plan.accumulation, accumulation);
        EXPECT_EQ(plan.data_parallel, world);
        EXPECT_EQ(plan.note, "");
      }
    }
  }
}

TEST(BatchPlan, StagesShareTheSameRows) {
  const BatchPlan plan = plan_batch(batch(12, 1), {.mesh = Mesh(WorldSize(8), {{Axis::stages, 4}})}, {});
  EXPECT_EQ(plan.data_parallel, 2);
  EXPECT_EQ(plan.accumulation, 6);
}

TEST(BatchPlan, AContradictionPrintsTheEquationAndFixes) {
  EXPECT_EQ(refusal([] {
              (void)plan_batch(batch(12, 1), {.mesh = Mesh(WorldSize(5))},
                               {{"batch.global", "configs/tiny.json:18:15"}});
            }),
            "configs/tiny.json:18:15: accumulation = global / (micro x data-parallel ranks) = 12 / (1 x 5) = "
            "2.4, which is not whole\n"
            "  fix: one of\n"
            "    --set batch.global=10  or  --set batch.global=15\n"
            "    -n 4  or  -n 6");
  EXPECT_EQ(refusal([] {
              (void)plan_batch(batch(12, 4), {.mesh = Mesh(WorldSize(2))},
                               {{"batch.global", "w.json:1:1"}, {"batch.micro", "--set batch.micro=4"}});
            }),
            "--set batch.micro=4: accumulation = global / (micro x data-parallel ranks) = 12 / (4 x 2) = "
            "1.5, which is not whole\n"
            "  fix: one of\n"
            "    --set batch.global=8  or  --set batch.global=16\n"
            "    --set batch.micro=3  or  --set batch.micro=6\n"
            "    -n 1  or  -n 3");
  EXPECT_EQ(refusal([] {
              (void)plan_batch(batch(4, 4), {.mesh = Mesh(WorldSize(4), {{Axis::stages, 2}})}, {});
            }),
            "the default of batch.global: accumulation = global / (micro x data-parallel ranks) = 4 / (4 x "
            "2) = 0.5, "
            "which is not whole\n"
            "  fix: one of\n"
            "    --set batch.global=8\n"
            "    --set batch.micro=2\n"
            "    -n 2");
}

TEST(BatchPlan, TheFlagOfTheRanksIsTheProgramsOwn) {
  const std::string message = refusal([] {
    (void)plan_batch(batch(12, 1), {.mesh = Mesh(WorldSize(5)), .ranks_flag = "--virtual-ranks"}, {});
  });
  EXPECT_NE(message.find("\n    --virtual-ranks 4  or  --virtual-ranks 6"), std::string::npos) << message;
  EXPECT_EQ(message.find("-n "), std::string::npos) << message;
}

// The numbers that follow `flag` in a message.
std::vector<std::int64_t> offers(const std::string& message, const std::string& flag) {
  std::vector<std::int64_t> values;
  for (auto at = message.find(flag); at != std::string::npos; at = message.find(flag, at + 1)) {
    values.push_back(std::stoll(message.substr(at + flag.size())));
  }
  return values;
}

void expect_working_fixes(std::int64_t global, std::int64_t micro, std::int64_t world) {
  const std::string message =
      refusal([&] { (void)plan_batch(batch(global, micro), {.mesh = Mesh(WorldSize(world))}, {}); });
  EXPECT_EQ(message.empty(), global % (micro * world) == 0);
  if (message.empty()) return;
  EXPECT_FALSE(offers(message, "--set batch.global=").empty());
  for (const std::int64_t value : offers(message, "--set batch.global="))
    EXPECT_EQ(value % (micro * world), 0);
  for (const std::int64_t value : offers(message, "--set batch.micro="))
    EXPECT_EQ(global % (value * world), 0);
  for (const std::int64_t value : offers(message, "-n ")) EXPECT_EQ(global % (micro * value), 0);
}

TEST(BatchPlan, EveryOfferedFixWorks) {
  for (std::int64_t global = 1; global <= 24; ++global) {
    for (std::int64_t micro = 1; micro <= 5; ++micro) {
      for (std::int64_t world = 1; world <= 9; ++world) expect_working_fixes(global, micro, world);
    }
  }
}

TEST(BatchPlan, APlanRoundsUpAndSaysSo) {
  const BatchPlan plan = plan_batch(batch(12, 1), {.mesh = Mesh(WorldSize(64)), .plan_only = true}, {});
  EXPECT_EQ(plan.accumulation, 1);
  EXPECT_EQ(
      plan.note,
      "accumulation = global / (micro x data-parallel ranks) = 12 / (1 x 64) = 0.1875, rounded up to 1; "
      "a real run of 64 ranks would refuse this batch");
}

TEST(BatchPlan, StagesMustDivideTheRanks) {
  EXPECT_EQ(refusal([] {
              (void)plan_batch(batch(12, 1), {.mesh = Mesh(WorldSize(5), {{Axis::stages, 2}})}, {});
            }),
            "-n 5: 5 ranks cannot be shared by 2 stages\n  fix: one of\n    -n 4  or  -n 6");
  EXPECT_EQ(refusal([] {
              (void)plan_batch(batch(12, 1),
                               {.mesh = Mesh(WorldSize(1), {{Axis::stages, 4}}), .plan_only = true}, {});
            }),
            "-n 1: 1 ranks cannot be shared by 4 stages\n  fix: one of\n    -n 4");
}

}  // namespace
}  // namespace sc
