// What --memory-cap says where a plan does not fit.
#include "common/run/fit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <optional>

#include "common/base/check.h"
#include "common/base/text.h"
#include "common/run/run_shape.h"
#include "lessons/07_pipeline/pipeline_plan.h"
#include "lessons/plans.h"

namespace sc {
namespace {

/// A run of that lesson, and the lessons after it.
LimitedRun limited(const std::string& folder = "01_data_parallel") {
  LimitedRun run;
  run.shape.workload.batch = {.sequence = 128, .global = 48, .micro = 4};
  run.shape.world = WorldSize{2};
  run.shape.device = DeviceKind::cuda;  // where no transport's scratch grows with the ranks
  run.shape.comm = CommBackend::nccl;
  for (const StrategyPlans& lesson : lesson_plans()) {
    const bool divides_states = lesson.folder < "05";  // a pipeline has tests of its own below
    if (run.plans && divides_states) run.strategies.push_back(lesson);
    if (lesson.folder == folder)
      run.plans = [lesson](const RunShape& shape) { return detail::plans_of_stages(lesson, shape); };
  }
  return run;
}

Bytes needs(const LimitedRun& run, std::int64_t micro, Activations activations, int world = 2) {
  RunShape shape = run.shape;
  shape.workload.batch.micro = micro;
  shape.workload.activations = activations;
  shape.world = WorldSize{world};
  return run.plans(shape).at(0).total();
}

std::optional<Bytes> found(const std::vector<Change>& changes, const std::string& what) {
  for (const Change& change : changes)
    if (change.what == what) return change.bytes;
  return {};
}

std::string fix_of(const LimitedRun& run) {
  try {
    refuse_what_does_not_fit(run);
  } catch (const InputError& error) {
    return error.fix();
  }
  return "it fits";
}

TEST(Fit, TheLargestMicroBatchThatFits) {
  LimitedRun run = limited();
  run.cap = needs(run, 3, Activations::keep);
  EXPECT_EQ(found(changes_that_fit(run), "--set batch.micro=3"), run.cap);
  run.cap -= Bytes(1);
  EXPECT_EQ(found(changes_that_fit(run), "--set batch.micro=2"), needs(run, 2, Activations::keep));
  run.shape.workload.batch.global = 40;  // 40 rows are not whole micro-batches of 3 on two ranks
  run.cap = needs(run, 3, Activations::keep);
  EXPECT_FALSE(found(changes_that_fit(run), "--set batch.micro=3"));
  EXPECT_TRUE(found(changes_that_fit(run), "--set batch.micro=2"));
}

TEST(Fit, TheLeastThatIsComputedAgain) {
  LimitedRun run = limited();
  run.cap = needs(run, 4, Activations::recompute_gelu);
  EXPECT_EQ(found(changes_that_fit(run), "--set activations=recompute_gelu"), run.cap);
  run.cap -= Bytes(1);
  EXPECT_FALSE(found(changes_that_fit(run), "--set activations=recompute_gelu"));
  EXPECT_EQ(found(changes_that_fit(run), "--set activations=recompute"),
            needs(run, 4, Activations::recompute));
}

TEST(Fit, BothWhereNeitherIsEnough) {
  LimitedRun run = limited();
  run.cap = std::min(needs(run, 1, Activations::keep), needs(run, 4, Activations::recompute)) - Bytes(1);
  const std::vector<Change> changes = changes_that_fit(run);
  ASSERT_FALSE(changes.empty());
  EXPECT_NE(changes[0].what.find("batch.micro="), std::string::npos) << changes[0].what;
  EXPECT_NE(changes[0].what.find("activations="), std::string::npos) << changes[0].what;
  for (const Change& change : changes) EXPECT_LE(change.bytes, run.cap) << change.what;
}

// Replicas do not shrink; slices do.
TEST(Fit, MoreRanksHelpAStrategyThatDivides) {
  LimitedRun run = limited("02_zero1");
  run.cap = needs(run, 4, Activations::keep, 3);
  EXPECT_EQ(found(changes_that_fit(run), "-n 3"), run.cap);
  LimitedRun replicas = limited();
  replicas.cap = needs(replicas, 4, Activations::keep) * 9 / 10;
  for (const Change& change : changes_that_fit(replicas))
    EXPECT_NE(change.what.substr(0, 2), "-n") << change.what;
}

TEST(Fit, StrategiesThatDivideMoreEachWithTheFewestRanks) {
  LimitedRun run = limited();
  const LimitedRun zero1 = limited("02_zero1");
  run.cap = needs(zero1, 4, Activations::keep, 2);
  EXPECT_EQ(found(changes_that_fit(run), "ZeRO-1 (lesson 02) -n 2"), run.cap);
  EXPECT_FALSE(found(changes_that_fit(run), "ZeRO-2 (lesson 03) -n 2")) << "no fewer ranks than ZeRO-1";
  run.cap = needs(zero1, 4, Activations::keep, 6);
  EXPECT_EQ(found(changes_that_fit(run), "ZeRO-1 (lesson 02) -n 6"), run.cap);
  run.strategies.clear();
  for (const Change& change : changes_that_fit(run))
    EXPECT_EQ(change.what.find("ZeRO"), std::string::npos) << change.what;
}

// A strategy that refuses the workload is no advice, and no error.
TEST(Fit, AStrategyThatRefusesIsLeftOut) {
  LimitedRun run = limited();
  run.shape.workload.precision = {
      .dtype = DType::bf16, .grad_dtype = DType::bf16, .reduce_dtype = DType::f32};
  run.cap = run.plans(run.shape).at(0).total() - Bytes(1);
  for (const Change& change : changes_that_fit(run))
    EXPECT_EQ(change.what.find("ZeRO"), std::string::npos) << change.what;
}

/// A pipeline whose stage s of S holds (s + 1) / (1 + 2 + ... + S) of 1 GB.
LimitedRun pipeline(std::int64_t world) {
  LimitedRun run = limited();
  run.shape.workload.model.layers = 4;
  run.shape.world = WorldSize{static_cast<int>(world)};
  run.shape.stages = world;
  run.strategies.clear();
  run.division = [](WorldSize ranks) { return Division{.stages = to_int(ranks)}; };
  run.plans = [](const RunShape& shape) {
    std::vector<MemoryPlan> plans;
    const std::int64_t S = shape.stages;
    for (std::int64_t s = 0; s < S; ++s) {
      MemoryPlan& plan = plans.emplace_back();
      plan.add(Purpose::parameters, "stage", "", Bytes(1'000'000'000 * (s + 1) * 2 / (S * (S + 1))));
    }
    return plans;
  };
  return run;
}

// The largest stage decides for all ranks alike, and the others wait for nobody who has stopped alone.
TEST(Fit, OfStagesTheLargestHasToFit) {
  LimitedRun run = pipeline(2);
  run.cap = Bytes(600'000'000);
  EXPECT_NE(fix_of(run).find("-n 3 "), std::string::npos) << fix_of(run);
  try {
    refuse_what_does_not_fit(run);
    FAIL();
  } catch (const InputError& error) {
    EXPECT_EQ(error.message().substr(0, error.message().find('\n')),
              "a rank of stage 1 would hold 666.67 MB, 66.67 MB more than that");
  }
  run.cap = Bytes(700'000'000);
  EXPECT_EQ(fix_of(run), "it fits");
}

// Settings that fit one number of stages are no advice for another, and no error either.
TEST(Fit, SettingsThatRefuseAWorldAreLeftOut) {
  LimitedRun run = limited();
  run.shape.workload.model.layers = 4;
  run.shape.stages = 2;
  run.strategies.clear();
  const PipelineOptions options{.split = "1,3"};
  run.division = [=](WorldSize ranks) { return PipelinePlans(options).division(ranks); };
  run.plans = [=](const RunShape& shape) { return std::vector{PipelinePlans(options).memory_plan(shape)}; };
  run.cap = run.plans(run.shape).at(0).total() - Bytes(1);
  for (const Change& change : changes_that_fit(run))
    EXPECT_EQ(change.what.find("-n"), std::string::npos) << change.what;
}

// Stages that share a machine need their sum, not the largest as often as there are ranks.
TEST(Fit, StagesOfOneMachineNeedTheirSum) {
  LimitedRun run = pipeline(2);
  run.place = "this machine";
  run.sharing = 2;
  run.cap = Bytes(1'000'000'000);
  EXPECT_EQ(fix_of(run), "it fits");
  run.cap = Bytes(999'000'000);
  EXPECT_NE(fix_of(run), "it fits");
}

TEST(Fit, StrategiesThatDivideMoreAndComputeAgain) {
  LimitedRun run = limited();
  run.cap = Bytes(INT64_MAX);
  RunShape shape = run.shape;
  shape.workload.activations = Activations::recompute_gelu;
  for (int world = 2; world <= 12; ++world) {
    if (12 % world != 0) continue;
    shape.world = WorldSize{world};
    for (const StrategyPlans& strategy : run.strategies)
      run.cap = std::min(run.cap, detail::plans_of_stages(strategy, shape).at(0).total());
  }
  const std::vector<Change> changes = changes_that_fit(run);
  ASSERT_FALSE(changes.empty());
  EXPECT_EQ(changes.back().what, "ZeRO-3 (lesson 04) -n 12 --set activations=recompute_gelu");
  EXPECT_EQ(changes.back().bytes, run.cap);
}

TEST(Fit, OneRankOnlyIsNotToldToUseMore) {
  LimitedRun run = limited("02_zero1");
  run.one_rank_only = true;
  run.cap = needs(run, 4, Activations::keep, 3);
  EXPECT_FALSE(found(changes_that_fit(run), "-n 3"));
}

TEST(Fit, TheMessageHasThePlanWhatIsMissingAndTheExactCap) {
  LimitedRun run = limited();
  const Bytes total = run.plans(run.shape).at(0).total();
  run.cap = total;
  EXPECT_NO_THROW(refuse_what_does_not_fit(run));
  run.cap = total - Bytes(1000);
  try {
    refuse_what_does_not_fit(run);
    FAIL();
  } catch (const InputError& error) {
    EXPECT_EQ(error.code(), ExitCode::missing);
    EXPECT_NE(error.message().find("1.00 kB more than that\n"), std::string::npos) << error.message();
    for (const char* purpose : {"parameters", "activations", "workspace"})
      EXPECT_NE(error.message().find(std::string("\n  ") + purpose), std::string::npos) << error.message();
    EXPECT_NE(error.fix().find("--memory-cap " + std::to_string(total.value())), std::string::npos);
    EXPECT_NE(error.fix().find("--set batch.micro=3 "), std::string::npos) << error.fix();
  }
}

// Ranks of one machine share what it has: more of them hold less each only where the strategy divides.
TEST(Fit, RanksOfAMachineShareItsMemory) {
  LimitedRun run = limited();
  run.place = "this machine";
  run.sharing = 2;
  const Bytes total = run.plans(run.shape).at(0).total();
  run.cap = total * 2;
  EXPECT_NO_THROW(refuse_what_does_not_fit(run));
  run.cap -= Bytes(1);
  try {
    refuse_what_does_not_fit(run);
    FAIL();
  } catch (const InputError& error) {
    EXPECT_EQ(error.code(), ExitCode::missing);
    EXPECT_NE(std::string(error.what()).find("free on this machine, ranks here: 2"), std::string::npos)
        << error.what();
    EXPECT_NE(error.message().find("1 B more than its share\n"), std::string::npos) << error.message();
    EXPECT_NE(error.fix().find("--set batch.micro=3 "), std::string::npos) << error.fix();
    EXPECT_EQ(error.fix().find("--memory-cap"), std::string::npos) << error.fix();
    EXPECT_EQ(error.fix().find("-n 3"), std::string::npos) << error.fix();  // as many bytes, once more
  }
  run.sharing = 1;  // the other is on another machine
  EXPECT_NO_THROW(refuse_what_does_not_fit(run));
  run.cap = Bytes(1);
  run.shape.workload.batch.micro = 1;
  EXPECT_EQ(fix_of(run), "a smaller model.*, or more GPUs");  // of which these ranks share one
  run.shape.device = DeviceKind::cpu;
  run.shape.comm = CommBackend::mpi;
  EXPECT_EQ(fix_of(run), "a smaller model.*, or more machines");
}

// A GPU belongs to one rank: more ranks have more GPUs, and as much each.
TEST(Fit, AGpuHasWhatIsFreeOnIt) {
  LimitedRun run = limited("02_zero1");
  run.place = "GPU 1";
  run.cap = run.plans(run.shape).at(0).total() - Bytes(1);
  try {
    refuse_what_does_not_fit(run);
    FAIL();
  } catch (const InputError& error) {
    EXPECT_EQ(error.code(), ExitCode::missing);
    EXPECT_EQ(std::string(error.what()).find(human_bytes(run.cap) + " free on GPU 1: a rank would hold "), 0u)
        << error.what();
    EXPECT_NE(error.message().find("1 B more than that\n"), std::string::npos) << error.message();
    EXPECT_NE(error.fix().find("-n 3"), std::string::npos) << error.fix();
    EXPECT_EQ(error.fix().find("--memory-cap"), std::string::npos) << error.fix();
  }
  run.cap = Bytes(1);
  run.shape.workload.batch.micro = 1;
  EXPECT_EQ(fix_of(run), "a smaller model.*, or more ranks");
  run.one_rank_only = true;
  EXPECT_EQ(fix_of(run), "a smaller model.*");
}

// Three ranks of ZeRO-1 hold less each than two, but three times that is more than the machine has.
TEST(Fit, MoreRanksOfAMachineHaveASmallerShare) {
  LimitedRun run = limited("02_zero1");
  run.cap = needs(run, 4, Activations::keep) * 2 - Bytes(1);
  ASSERT_LE(needs(run, 4, Activations::keep, 3) * 2, run.cap);
  ASSERT_GT(needs(run, 4, Activations::keep, 3) * 3, run.cap);
  run.sharing = 2;
  EXPECT_FALSE(found(changes_that_fit(run), "-n 3"));
  run.sharing = 0;
  EXPECT_TRUE(found(changes_that_fit(run), "-n 3"));
}

}  // namespace
}  // namespace sc
