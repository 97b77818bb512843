// Tests the advice that --memory-cap gives if a plan does not fit.
#include "common/run/fit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>

#include "common/base/check.h"
#include "common/base/text.h"
#include "common/run/run_shape.h"
#include "lessons/07_pipeline/pipeline_plan.h"
#include "lessons/11_combined/combined_plan.h"
#include "lessons/plans.h"
#include "tests/support/answers.h"
#include "tests/watch/refusal.h"

namespace sc {
namespace {

/// A run of the lesson in `folder` for which later lessons may be proposed.
LimitedRun limited(const std::string& folder = "01_data_parallel") {
  LimitedRun run;
  run.shape.workload.batch = {.sequence = 128, .global = 48, .micro = 4};
  run.shape.mesh = Mesh(WorldSize{2});
  run.shape.device = DeviceKind::cuda;  // where no transport's scratch grows with the ranks
  run.shape.comm = CommBackend::nccl;
  for (const StrategyPlans& lesson : lesson_plans()) {
    const bool divides_states = lesson.folder < "05";  // a pipeline has tests of its own below
    if (run.plans && divides_states) run.strategies.push_back(lesson);
    if (lesson.folder == folder && !run.plans)
      run.plans = [lesson](const RunShape& shape) { return detail::plans_of_world(*lesson.plans, shape); };
  }
  return run;
}

Bytes needs(const LimitedRun& run, std::int64_t micro, Activations activations, int world = 2) {
  RunShape shape = run.shape;
  shape.workload.batch.micro = micro;
  shape.workload.activations = activations;
  shape.mesh = Mesh(WorldSize{world});
  return run.plans(shape).at(0).total();
}

std::optional<Bytes> found(const std::vector<Change>& changes, const std::string& what) {
  for (const Change& change : changes)
    if (change.what == what) return change.bytes;
  return {};
}

std::string fix_of(const LimitedRun& run) {
  try {
    refuse_what_does_not_fit(run, run.plans(run.shape));
  } catch (const InputError& error) {
    return error.fix();
  }
  return "it fits";
}

/// The refusal of a run that does not fit, as refuse_what_does_not_fit() throws it.
InputError refusal(const LimitedRun& run) {
  const InputError error = test::refusal_of([&] { refuse_what_does_not_fit(run, run.plans(run.shape)); });
  EXPECT_EQ(error.code(), ExitCode::missing);
  return error;
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
  test::expect_parts(changes[0].what, {"batch.micro=", "activations="});
  for (const Change& change : changes) EXPECT_LE(change.bytes, run.cap) << change.what;
}

// More ranks are advice only for a strategy that divides its states: a replica is as large on any number of
// ranks.
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

// A strategy that refuses the workload is left out of the advice, and its error is not passed on.
TEST(Fit, AStrategyThatRefusesIsLeftOut) {
  LimitedRun run = limited();
  run.shape.workload.precision = {
      .dtype = DType::bf16, .grad_dtype = DType::bf16, .reduce_dtype = DType::f32};
  run.cap = run.plans(run.shape).at(0).total() - Bytes(1);
  for (const Change& change : changes_that_fit(run))
    EXPECT_EQ(change.what.find("ZeRO"), std::string::npos) << change.what;
}

/// A run whose plan is a pipeline: stage s of S holds (s + 1) / (1 + 2 + ... + S) of 1 GB.
LimitedRun pipeline(std::int64_t world) {
  LimitedRun run = limited();
  run.shape.workload.model.layers = 4;
  run.shape.mesh = Mesh(WorldSize{static_cast<int>(world)}, {{Axis::stages, world}});
  run.strategies.clear();
  run.mesh = [](WorldSize ranks) { return Mesh(ranks, {{Axis::stages, to_int(ranks)}}); };
  run.plans = [](const RunShape& shape) {
    std::vector<MemoryPlan> plans;
    const std::int64_t S = shape.mesh.size(Axis::stages);
    for (std::int64_t s = 0; s < S; ++s) {
      MemoryPlan& plan = plans.emplace_back();
      plan.add({Purpose::parameters, "stage", 1'000'000'000 * (s + 1) * 2 / (S * (S + 1))});
    }
    return plans;
  };
  return run;
}

// All ranks must decide by the largest stage: a rank that stopped alone would leave the others waiting.
TEST(Fit, OfStagesTheLargestHasToFit) {
  LimitedRun run = pipeline(2);
  run.cap = Bytes(600'000'000);
  EXPECT_NE(fix_of(run).find("-n 3 "), std::string::npos) << fix_of(run);
  const std::string message = refusal(run).message();
  EXPECT_EQ(message.substr(0, message.find('\n')),
            "a rank of stage 1 would hold 666.67 MB, 66.67 MB more than that");
  run.cap = Bytes(700'000'000);
  EXPECT_EQ(fix_of(run), "it fits");
}

// Settings that refuse another number of ranks give no advice for that number, and no error.
TEST(Fit, SettingsThatRefuseAWorldAreLeftOut) {
  LimitedRun run = limited();
  run.shape.workload.model.layers = 4;
  run.shape.mesh = Mesh(run.shape.mesh.world(), {{Axis::stages, 2}});
  run.strategies.clear();
  const PipelineOptions options{.split = "1,3"};
  run.mesh = [=](WorldSize ranks) { return PipelinePlans(options).mesh(ranks); };
  run.plans = [=](const RunShape& shape) { return std::vector{PipelinePlans(options).memory_plan(shape)}; };
  run.cap = run.plans(run.shape).at(0).total() - Bytes(1);
  const std::function<Mesh(WorldSize)> named = [](WorldSize ranks) {
    return mesh_of(CombinedOptions{.mesh = "2x1x1"}, ranks);  // refuses every other world
  };
  for (const auto& mesh : {run.mesh, named}) {
    run.mesh = mesh;
    for (const Change& change : changes_that_fit(run))
      EXPECT_EQ(change.what.find("-n"), std::string::npos) << change.what;
  }
}

// Stages that share a machine need the sum of their bytes, which is less than the largest for every rank.
TEST(Fit, StagesOfOneMachineNeedTheirSum) {
  LimitedRun run = pipeline(2);
  run.place = "this machine";
  run.sharing = 2;
  run.cap = Bytes(1'000'000'000);
  EXPECT_EQ(fix_of(run), "it fits");
  run.cap = Bytes(999'000'000);
  EXPECT_NE(fix_of(run), "it fits");
}

// The strategy's own smaller settings are proposed first, because they compute the same numbers.
TEST(Fit, ItsOwnSettingsComeFirst) {
  LimitedRun run = limited("05_offload");
  run.shape.workload.model.layers = 24;  // of which the sharded one holds two at a time
  run.smaller = {lesson_plans_of("05_offload", {"prefetch=3"}),  // which takes more
                 lesson_plans_of("05_offload", {"parameters=sharded"}),
                 lesson_plans_of("05_offload", {"parameters=sharded", "prefetch=0"})};
  run.cap = detail::plans_of_world(*run.smaller[1].plans, run.shape).at(0).total();
  ASSERT_GT(run.plans(run.shape).at(0).total(), run.cap);
  EXPECT_EQ(changes_that_fit(run).front().what, "--set parameters=sharded");
  EXPECT_EQ(changes_that_fit(run).front().bytes, run.cap);
  run.cap = run.cap - Bytes(1);
  EXPECT_EQ(changes_that_fit(run).front().what, "--set parameters=sharded --set prefetch=0");
}

// Of lessons that need as few ranks, one is named for each axis: the rows' length is divided by two of them.
TEST(Fit, OneStrategyForEachAxisThatNeedsAsFewRanks) {
  LimitedRun run = limited();
  run.strategies = {lesson_plans_of("03_zero2", {}), lesson_plans_of("04_zero3", {}),
                    lesson_plans_of("10_tensor_parallel", {}), lesson_plans_of("12_context_parallel", {})};
  for (const StrategyPlans& of : run.strategies) {
    RunShape shape = run.shape;
    shape.mesh = of.plans->mesh(WorldSize{2});
    run.cap = std::max(run.cap, detail::plans_of_world(*of.plans, shape).at(0).total());
  }
  const std::vector<Change> changes = changes_that_fit(run);
  EXPECT_TRUE(found(changes, "ZeRO-2 (lesson 03) -n 2"));
  EXPECT_FALSE(found(changes, "ZeRO-3 (lesson 04) -n 2"));
  EXPECT_TRUE(found(changes, "tensor parallel (lesson 10) -n 2"));
  EXPECT_TRUE(found(changes, "context parallel (lesson 12) -n 2"));
}

// Advice names later strategies with their settings and the number of their lesson.
TEST(Fit, OtherStrategiesComeWithTheirSettings) {
  LimitedRun run = limited();
  run.strategies = {lesson_plans_of("06_infinity", {"parameters=sharded", "params_at=disk"})};
  run.cap = detail::plans_of_world(*run.strategies[0].plans, run.shape).at(0).total();
  EXPECT_EQ(changes_that_fit(run).back().what,
            "infinity (lesson 06) -n 2 --set parameters=sharded --set params_at=disk");
}

TEST(Fit, StrategiesThatDivideMoreAndComputeAgain) {
  LimitedRun run = limited();
  run.cap = Bytes(INT64_MAX);
  RunShape shape = run.shape;
  shape.workload.activations = Activations::recompute_gelu;
  for (int world = 2; world <= 12; ++world) {
    if (12 % world != 0) continue;
    shape.mesh = Mesh(WorldSize{world});
    for (const StrategyPlans& strategy : run.strategies)
      run.cap = std::min(run.cap, detail::plans_of_world(*strategy.plans, shape).at(0).total());
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
  EXPECT_NO_THROW(refuse_what_does_not_fit(run, run.plans(run.shape)));
  run.cap = total - Bytes(1000);
  const InputError error = refusal(run);
  test::expect_parts(error.message(),
                     {"1.00 kB more than that\n", "\n  parameters", "\n  activations", "\n  workspace"});
  test::expect_parts(error.fix(), {"--memory-cap " + std::to_string(total.value()), "--set batch.micro=3 "});
}

// Ranks of one machine share its memory, so more of them help only where the strategy divides its states.
TEST(Fit, RanksOfAMachineShareItsMemory) {
  LimitedRun run = limited();
  run.place = "this machine";
  run.sharing = 2;
  const Bytes total = run.plans(run.shape).at(0).total();
  run.cap = total * 2;
  EXPECT_NO_THROW(refuse_what_does_not_fit(run, run.plans(run.shape)));
  run.cap -= Bytes(1);
  const InputError error = refusal(run);
  test::expect_parts(error.what(), {"free on this machine, ranks here: 2", "1 B more than its share\n",
                                    "--set batch.micro=3 "});
  EXPECT_EQ(error.fix().find("--memory-cap"), std::string::npos) << error.fix();
  EXPECT_EQ(error.fix().find("-n 3"), std::string::npos) << error.fix();  // as many bytes, once more
  run.sharing = 1;                                                        // the other is on another machine
  EXPECT_NO_THROW(refuse_what_does_not_fit(run, run.plans(run.shape)));
  run.cap = Bytes(1);
  run.shape.workload.batch.micro = 1;
  EXPECT_EQ(fix_of(run), "a smaller model.*, or more GPUs");  // of which these ranks share one
  run.shape.device = DeviceKind::cpu;
  run.shape.comm = CommBackend::mpi;
  EXPECT_EQ(fix_of(run), "a smaller model.*, or more machines");
}

// Each rank has a GPU of its own, so more ranks bring more GPUs, with as much free memory each.
TEST(Fit, AGpuHasWhatIsFreeOnIt) {
  LimitedRun run = limited("02_zero1");
  run.place = "GPU 1";
  run.cap = run.plans(run.shape).at(0).total() - Bytes(1);
  const InputError error = refusal(run);
  EXPECT_EQ(std::string(error.what()).find(human_bytes(run.cap) + " free on GPU 1: a rank would hold "), 0u)
      << error.what();
  test::expect_parts(error.what(), {"1 B more than that\n", "-n 3"});
  EXPECT_EQ(error.fix().find("--memory-cap"), std::string::npos) << error.fix();
  run.cap = Bytes(1);
  run.shape.workload.batch.micro = 1;
  EXPECT_EQ(fix_of(run), "a smaller model.*, or more ranks");
  run.one_rank_only = true;
  EXPECT_EQ(fix_of(run), "a smaller model.*");
}

// Three ranks of ZeRO-1 hold less each than two, but three together need more than the machine has.
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

/// A run of a made-up lesson. A rank holds 100 bytes for each row of its micro-batch (70 or 30 recomputed),
/// `whole` bytes, and its share of `shared`; beside its device 40 bytes pinned and 60 on the host. A step has
/// 12 rows, 3 in a micro-batch.
LimitedRun counted(int world, std::int64_t whole, std::int64_t shared, DeviceKind device = DeviceKind::cpu) {
  LimitedRun run;
  run.shape.workload.batch = {.sequence = 128, .global = 12, .micro = 3};
  run.shape.mesh = Mesh(WorldSize{world});
  run.shape.device = device;
  run.shape.comm = device == DeviceKind::cpu ? CommBackend::mpi : CommBackend::nccl;
  run.plans = [whole, shared](const RunShape& shape) {
    const Activations again = shape.workload.activations;
    const std::int64_t row = again == Activations::keep             ? 100
                             : again == Activations::recompute_gelu ? 70
                                                                    : 30;
    MemoryPlan plan;
    plan.add({Purpose::activations, "rows", row * shape.workload.batch.micro});
    plan.add({Purpose::parameters, "states", whole + shared / to_int(shape.mesh.world())});
    plan.add({Purpose::workspace, "staging", 40, DType::u8, Place::pinned});
    plan.add({Purpose::master, "master", 60, DType::u8, Place::host});
    plan.add({Purpose::momentum, "momentum", 1'000'000, DType::u8, Place::disk});
    return std::vector{plan};
  };
  return run;
}

using Lines = std::vector<std::string>;

Lines found(LimitedRun run, std::int64_t cap) {
  run.cap = Bytes(cap);
  Lines lines;
  for (const Change& change : changes_that_fit(run))
    lines.push_back(change.what + ": " + std::to_string(change.bytes.value()));
  return lines;
}

std::string excess(LimitedRun run, std::int64_t cap) {
  run.cap = Bytes(cap);
  try {
    refuse_what_does_not_fit(run, run.plans(run.shape));
  } catch (const InputError& error) {
    return error.message().substr(0, error.message().find('\n'));
  }
  return "it fits";
}

// On the CPU, ranks of a machine share its memory for everything: each rank has 300 + 50 bytes for its device
// and 40 + 60 outside it. Disk space does not count as memory, and a GPU's memory is apart from the host's.
TEST(FitCounts, RanksOfAMachineWithTheirHostsBytes) {
  for (const int here : {1, 2, 4}) {
    LimitedRun run = counted(4, 50, 0);
    run.place = "this machine", run.sharing = here;  // of four
    EXPECT_EQ(excess(run, 450 * here), "it fits") << here;
    EXPECT_EQ(excess(run, 450 * here - 1), "a rank would hold 350 B, 1 B more than its share") << here;
    EXPECT_EQ(excess(run, 450 * here - 2 * here), "a rank would hold 350 B, 2 B more than its share") << here;
    run = counted(4, 50, 0, DeviceKind::cuda);
    run.place = "GPU 0", run.sharing = here;
    EXPECT_EQ(excess(run, 350 * here), "it fits") << here;
    EXPECT_NE(excess(run, 350 * here - 1), "it fits") << here;
  }
  const LimitedRun capped = counted(4, 50, 0);  // --memory-cap is each rank's, and of its device
  EXPECT_EQ(excess(capped, 350), "it fits");
  EXPECT_EQ(excess(capped, 349), "a rank would hold 350 B, 1 B more than that");
}

// Two ranks can share 12 rows in micro-batches of 1, 2, 3 or 6 rows, and so can one rank with two virtual
// ranks; two ranks with three virtual ranks each need micro-batches of 1 or 2.
TEST(FitCounts, SmallerMicroBatchesDivideTheRowsOfAllRanksVirtualOnesToo) {
  const auto smaller = [](int world, std::int64_t virtual_ranks, std::int64_t micro, std::int64_t cap) {
    LimitedRun run = counted(world, 0, 0);
    run.one_rank_only = true;
    run.shape.workload.batch.micro = micro;
    run.virtual_ranks = virtual_ranks;
    run.cap = Bytes(cap);
    const std::vector<Change> changes = changes_that_fit(run);
    return changes.empty() ? std::string() : changes[0].what;
  };
  test::expect_texts({
      {smaller(1, 1, 12, 1199), "--set batch.micro=6"},
      {smaller(1, 1, 6, 599), "--set batch.micro=4"},  // 5 does not divide 12.
      {smaller(2, 1, 6, 599), "--set batch.micro=3"},  // 4 rows on two ranks do not divide 12.
      {smaller(1, 2, 6, 599), "--set batch.micro=3"},
      {smaller(1, 3, 4, 399), "--set batch.micro=2"},
      {smaller(2, 3, 2, 199), "--set batch.micro=1"},
      {smaller(2, 1, 6, 300), "--set batch.micro=3"},
      {smaller(2, 1, 6, 299), "--set batch.micro=2"},
      {smaller(1, 4, 3, 99), "--set activations=recompute"}  // 100 a row, or 90 of three.
  });
}

// Four rows at 100, 70 or 30 bytes and 120 whole make 420, 330 or 210 bytes; each row less at 100 saves 100.
TEST(FitCounts, WhatCostsLeastComesFirst) {
  const std::map<std::int64_t, Lines> by_cap = {
      {419, {"--set batch.micro=2: 320", "--set activations=recompute_gelu: 330"}},
      {320, {"--set batch.micro=2: 320", "--set activations=recompute: 210"}},
      {210, {"--set activations=recompute: 210"}},                      // one row takes 220
      {209, {"--set batch.micro=2 --set activations=recompute: 180"}},  // 120 + 2 x 30
      {179, {"--set batch.micro=1 --set activations=recompute: 150"}},
      {149, {}}};
  for (const auto& [cap, lines] : by_cap) EXPECT_EQ(found(counted(2, 120, 0), cap), lines) << cap;
}

// Each of two ranks holds 300 + 600 / 2 bytes; of four ranks, each has one of four micro-batches, 300 + 600 /
// 4.
TEST(FitCounts, MoreRanksAreAsManyAsShareTheMicroBatches) {
  LimitedRun run = counted(2, 0, 600);
  run.shape.workload.activations = Activations::recompute;  // 90 + 300
  EXPECT_EQ(found(run, 389), (Lines{"--set batch.micro=2: 360", "-n 4: 240"}))
      << "three ranks cannot share four";
  run.shape.workload.batch.global = 18;  // six micro-batches: three ranks, 90 + 200
  EXPECT_EQ(found(run, 389), (Lines{"--set batch.micro=1: 330", "-n 3: 290"}));
  EXPECT_EQ(found(run, 289), (Lines{"-n 6: 190"}));  // six, 90 + 100
  EXPECT_EQ(found(run, 189), Lines{}) << "more ranks than micro-batches have nothing to do";
}

// Two of four ranks are on this machine, so three of six, and six of twelve. A rank holds 30 bytes for its
// row, 100 beside its device, and its share of 2000: 630 on four ranks, 463 on six, 296 on twelve.
TEST(FitCounts, MoreRanksHaveTheirPartOfEachMachine) {
  LimitedRun run = counted(4, 0, 2000);
  run.shape.workload.batch.micro = 1;
  run.shape.workload.activations = Activations::recompute;
  run.place = "this machine", run.sharing = 2;
  EXPECT_EQ(excess(run, 2 * 630), "it fits");
  EXPECT_EQ(excess(run, 2 * 630 - 1), "a rank would hold 530 B, 1 B more than its share");
  EXPECT_EQ(found(run, 2 * 630 - 1), Lines{});  // of six three, with 419 each
  run.sharing = 1;                              // of six two, the rest of them on other machines
  EXPECT_EQ(found(run, 629), Lines{});
  run.place = "", run.sharing = 0;  // each has the cap to itself, for its device: 530, 363, 196
  EXPECT_EQ(found(run, 529), (Lines{"-n 6: 363"}));
  EXPECT_EQ(found(run, 362), (Lines{"-n 12: 196"}));
}

// Two stages of one machine need 100 + 10 (pinned) and 300 + 30 (host) bytes on the CPU, 100 and 300 on a
// GPU.
TEST(FitCounts, StagesOfAMachineNeedTheirSumWithTheirHostsBytes) {
  for (const DeviceKind device : {DeviceKind::cpu, DeviceKind::cuda}) {
    LimitedRun run = counted(2, 0, 0, device);
    run.shape.mesh = Mesh(run.shape.mesh.world(), {{Axis::stages, 2}});
    run.one_rank_only = true;
    run.plans = [](const RunShape& shape) {
      const std::int64_t row = 50 * shape.workload.batch.micro;
      std::vector<MemoryPlan> plans(2);
      plans[0].add({Purpose::activations, "x", row - 50});
      plans[0].add({Purpose::workspace, "staging", 10, DType::u8, Place::pinned});
      plans[1].add({Purpose::activations, "x", row + 150});
      plans[1].add({Purpose::workspace, "states", 30, DType::u8, Place::host});
      plans[1].add({Purpose::workspace, "file", 7000, DType::u8, Place::disk});
      return plans;
    };
    run.place = "this machine", run.sharing = 2;
    const std::int64_t all = device == DeviceKind::cpu ? 440 : 400;
    EXPECT_EQ(excess(run, all), "it fits");
    EXPECT_EQ(excess(run, all - 1), "a rank of stage 1 would hold 300 B, 1 B more than its share");
    EXPECT_EQ(found(run, all - 1), (Lines{"--set batch.micro=2: 250"})) << "50 + 250 of its rows";
    run.place = "", run.sharing = 0;  // the largest decides
    EXPECT_EQ(excess(run, 300), "it fits");
    EXPECT_EQ(excess(run, 299), "a rank of stage 1 would hold 300 B, 1 B more than that");
  }
}

}  // namespace
}  // namespace sc
