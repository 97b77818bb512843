#include <gtest/gtest.h>

#include "common/records/ending.h"
#include "tests/support/answers.h"

namespace sc {
namespace {

MemoryPlan some_memory() {
  MemoryPlan plan;
  plan.add({Purpose::gradients, "grads", Formula("P", 1'000'000), DType::f32});
  plan.add({Purpose::parameters, "params", Formula("P", 1'000'000), DType::f32});
  plan.add({Purpose::workspace, "workspace", Formula("work", 1'000'000) + Formula("head", 500'000)});
  plan.add({Purpose::workspace, "sums", 4, DType::f64});
  plan.add({Purpose::stash, "old", 0});
  return plan;
}

CommPlan some_operations() {
  CommPlan plan;
  plan.add({CommKind::all_reduce, DType::f32, Elements(250'000), WorldSize{2}}, 4);
  plan.add({CommKind::all_reduce, DType::f64, Elements(4), WorldSize{2}});
  return plan;
}

Measured as_measured(const MemoryPlan& memory, const CommPlan& operations) {
  return {bytes_of(memory), memory.by_name(), operations};
}

// With two ranks, an all-reduce sends as many bytes as it reduces: 4 x 1 MB and 32 bytes.
TEST(PlanTable, ShowsPurposesBuffersFormulasAndOperations) {
  EXPECT_EQ(format_plan_table({{some_memory(), some_operations()}}, WorldSize{2}),
            "memory of a rank\n"
            "  purpose     bytes    buffer     bytes      formula\n"
            "  parameters  4.00 MB  params     4,000,000  = 4 P\n"
            "  gradients   4.00 MB  grads      4,000,000  = 4 P\n"
            "  workspace   1.50 MB  workspace  1,500,000  = work + head\n"
            "                       sums              32  = 8 x 4\n"
            "  total       9.50 MB             9,500,032\n"
            "operations of a rank in one step\n"
            "  operation   count  elements  dtype  a rank sends\n"
            "  all_reduce      1         4  f64            32 B\n"
            "  all_reduce      4   250,000  f32         4.00 MB\n"
            "  total           5                        4.00 MB\n");
}

// NCCL allocates windows and LibTorch everything else; the ledger counts both.
TEST(AllocatorTable, CountsWindowsAndSaysHowMuchTheyAre) {
  AllocatorCheck check;
  check.parts = {{"ledger", Bytes(1'000'000)}, {"cuBLAS workspace", Bytes(24'000)}};
  check.peak = Bytes(1'024'000);
  EXPECT_EQ(format_allocator(check),
            "  allocated on the GPU  predicted  measured\n"
            "  ledger                1,000,000\n"
            "  cuBLAS workspace         24,000\n"
            "  peak                  1,024,000  1,024,000  +0.00 %\n");
  EXPECT_TRUE(check.holds());
  check.windows = Bytes(600'000);
  const std::string text = format_allocator(check);
  EXPECT_EQ(text.substr(text.rfind("  of it")), "  of it windows, by NCCL               600,000\n") << text;
  check.windows = Bytes(0);
  check.beside = {{"context", Bytes(500'000)}, {"communicators", Bytes(20'000)}};
  const std::string beside = format_allocator(check);
  EXPECT_EQ(beside.substr(beside.find("  in use")),
            "  in use on the GPU beside it\n"
            "  context                                   500,000\n"
            "  communicators                              20,000\n");
  check.peak = Bytes(1'035'000);
  EXPECT_FALSE(check.holds());
}

// If every operation's scratch is known to be zero, a step that allocates a single byte breaks the
// prediction.
TEST(AllocatorTable, SaysThatAStepAllocated) {
  AllocatorCheck check;
  check.parts = {{"ledger", Bytes(1'000'000)}};
  check.peak = Bytes(1'000'000);
  EXPECT_EQ(format_allocator(check).find("allocations"), std::string::npos);
  check.allocations = 0;
  EXPECT_EQ(format_allocator(check),
            "  allocated on the GPU     predicted  measured\n"
            "  ledger                   1,000,000\n"
            "  peak                     1,000,000  1,000,000  +0.00 %\n"
            "  allocations in the step          0          0  equal\n");
  check.allocations = 3;
  const std::string text = format_allocator(check);
  EXPECT_EQ(text.substr(text.rfind("  allocations")),
            "  allocations in the step          0          3  DIFFERENT\n")
      << text;
}

// Ranks with equal plans share one table, with a total for each place and a row for each way of an operation.
TEST(PlanTable, ShowsEachPlaceAndWayByItself) {
  RankPlan plan;
  plan.memory.add({Purpose::momentum, "moments", Formula("P", 100), DType::f64, Place::host});
  plan.memory.add({Purpose::parameters, "params", Formula("P", 100), DType::bf16});
  plan.operations.add({CommKind::to_host, DType::bf16, Elements(100), WorldSize{1}}, 2);
  plan.operations.add({CommKind::disk_write, DType::f32, Elements(10), WorldSize{1}});
  RankPlan next = plan;
  plan.ranks.count = 2, next.ranks = {2, 2, 1};
  EXPECT_EQ(format_plan_table({plan, next}, WorldSize{4}),
            "memory of a rank\n"
            "  purpose         bytes  buffer   bytes  formula\n"
            "  parameters      200 B  params     200  = 2 P\n"
            "  total           200 B             200\n"
            "  momentum, host  800 B  moments    800  = 8 P\n"
            "  total, host     800 B             800\n"
            "operations of a rank in one step\n"
            "  operation      count  elements  dtype  a rank sends\n"
            "  to_host            2       100  bf16          400 B\n"
            "  over the link      2                          400 B\n"
            "  disk_write         1        10  f32            40 B\n"
            "  over the disk      1                           40 B\n");
}

// In a pipeline of two replicas a stage, ranks of a stage have equal plans; the last stage has logits and
// fewer saved activations.
TEST(PlanTable, RanksThatDifferStandSideBySide) {
  RankPlan inner, last;
  inner.memory.add({Purpose::activations, "saved", 500});
  inner.operations.add({CommKind::send, DType::f32, Elements(10), WorldSize{6}}, 3);
  inner.operations.add({CommKind::all_reduce, DType::f32, Elements(100), WorldSize{2}});
  last.memory.add({Purpose::activations, "saved", 250});
  last.memory.add({Purpose::workspace, "logits", 900});
  last.operations.add({CommKind::all_reduce, DType::f32, Elements(100), WorldSize{2}});
  RankPlan next = inner;
  inner.ranks.count = 2, next.ranks = {2, 2, 1}, last.ranks = {4, 2, 1};
  EXPECT_EQ(format_plan_table({inner, next, last}, WorldSize{6}),
            "memory of the ranks\n"
            "  purpose      ranks 0-3  ranks 4-5\n"
            "  activations      500 B      250 B\n"
            "  workspace          0 B      900 B\n"
            "  total            500 B    1.15 kB\n"
            "of them ranks 4-5, which hold most\n"
            "  purpose      bytes    buffer  bytes  formula\n"
            "  activations    250 B  saved     250  = 250\n"
            "  workspace      900 B  logits    900  = 900\n"
            "  total        1.15 kB          1,150\n"
            "operations of the ranks in one step\n"
            "  operation                       ranks 0-3  ranks 4-5\n"
            "  all_reduce of 100 f32, 2 ranks          1          1\n"
            "  send of 10 f32                          3          0\n"
            "  a rank sends                        520 B      400 B\n");
}

TEST(TimetableText, IsMillisecondsAndShares) {
  EXPECT_EQ(
      format_timetable({.rows = {{"measured", 0.25, 0.5, "one step"}, {"formula", 0.0321, 0.2727, ""}}}),
      "  time of a step  makespan   idle\n"
      "  measured        250.00 ms  50.0 %  one step\n"
      "  formula          32.10 ms  27.3 %\n");
}

TEST(PredictedMeasured, SaysThatAllIsEqual) {
  const MemoryPlan memory = some_memory();
  const CommPlan operations = some_operations();
  const Measured measured = as_measured(memory, operations);
  EXPECT_TRUE(as_predicted(memory, operations, measured));
  EXPECT_EQ(format_predicted_measured(memory, operations, measured, WorldSize{2}, Rank{1}),
            "  peak bytes of rank 1  predicted  measured\n"
            "  parameters            4,000,000  4,000,000  equal\n"
            "  gradients             4,000,000  4,000,000  equal\n"
            "  workspace             1,500,032  1,500,032  equal\n"
            "  total                 9,500,032  9,500,032  equal\n"
            "  operations of one step     predicted  measured\n"
            "  all_reduce of 4 f64                1          1  equal\n"
            "  all_reduce of 250,000 f32          4          4  equal\n"
            "  bytes sent                 4,000,032  4,000,032  equal\n");
}

TEST(PredictedMeasured, NamesEachDifference) {
  const MemoryPlan memory = some_memory();
  Measured measured = as_measured(memory, some_operations());
  measured.peak.of.at(Purpose::stash) = Bytes(64);
  measured.peak_by_name[{Purpose::stash, Place::device, "kept"}] = Bytes(64);
  measured.peak.total += Bytes(64);
  measured.operations.add({CommKind::broadcast, DType::i64, Elements(1), WorldSize{2}});
  EXPECT_FALSE(as_predicted(memory, some_operations(), measured));
  test::expect_parts(format_predicted_measured(memory, some_operations(), measured, WorldSize{2}, Rank{0}),
                     {"older weights                 0         64  DIFFERENT\n"
                      "    kept                        0         64  DIFFERENT\n",
                      "total                 9,500,032  9,500,096  DIFFERENT",
                      "broadcast of 1 i64                 0          1  DIFFERENT",
                      "parameters            4,000,000  4,000,000  equal"});
}

// A difference in any single number must break the claim "as predicted".
TEST(AsPredicted, ComparesPurposesTotalAndOperations) {
  const MemoryPlan memory = some_memory();
  const CommPlan operations = some_operations();
  for_each_place([&](Place place) {
    for_each_purpose([&](Purpose purpose) {
      Measured measured = as_measured(memory, operations);
      measured.peak.of.at(purpose, place) += Bytes(1);
      EXPECT_FALSE(as_predicted(memory, operations, measured)) << name_of(purpose) << name_of(place);
    });
  });
  Measured measured = as_measured(memory, operations);
  measured.peak.total += Bytes(1);
  EXPECT_FALSE(as_predicted(memory, operations, measured));
  measured = as_measured(memory, operations);
  measured.operations.count.begin()->second += 1;
  EXPECT_FALSE(as_predicted(memory, operations, measured));
}

CommPlan of_unit(int unit, OpPurpose purpose = OpPurpose::gradients) {
  CommPlan plan;
  plan.add({CommKind::all_reduce, DType::f32, Elements(250'000), WorldSize{2}}, {purpose, unit});
  plan.add({CommKind::all_reduce, DType::f32, Elements(250'000), WorldSize{2}}, {OpPurpose::gradients, 2}, 3);
  return plan;
}

// Operations that differ only in their payload count as different, and stand in rows of their own.
TEST(AsPredicted, WhatAnOperationCarriesCounts) {
  const MemoryPlan memory = some_memory();
  const Measured equal = as_measured(memory, of_unit(1));
  EXPECT_TRUE(as_predicted(memory, of_unit(1), equal));
  const auto table = [&](const CommPlan& plan, const Measured& measured) {
    const std::string text = format_predicted_measured(memory, plan, measured, WorldSize{2}, Rank{0});
    return text.substr(text.find("  operations of one step"));
  };
  EXPECT_EQ(table(of_unit(1), equal),
            "  operations of one step     predicted  measured\n"
            "  all_reduce of 250,000 f32          4          4  equal\n"
            "  bytes sent                 4,000,000  4,000,000  equal\n");

  const Measured other_unit = as_measured(memory, of_unit(3));
  EXPECT_FALSE(as_predicted(memory, of_unit(1), other_unit));
  EXPECT_EQ(table(of_unit(1), other_unit),
            "  operations of one step                          predicted  measured\n"
            "  all_reduce of 250,000 f32                               4          4  equal\n"
            "  all_reduce of unit 1's gradients (250,000 f32)          1          0  DIFFERENT\n"
            "  all_reduce of unit 3's gradients (250,000 f32)          0          1  DIFFERENT\n"
            "  bytes sent                                      4,000,000  4,000,000  equal\n");

  const Measured other_purpose = as_measured(memory, of_unit(1, OpPurpose::parameters));
  EXPECT_FALSE(as_predicted(memory, of_unit(1), other_purpose));
  EXPECT_NE(table(of_unit(1), other_purpose).find("all_reduce of unit 1's parameters (250,000 f32)"),
            std::string::npos);
}

TEST(PlanTable, RanksWhoseOperationsOnlyCarryOtherThingsAreAlike) {
  const std::vector<RankPlan> named = {{some_memory(), of_unit(1)}, {some_memory(), of_unit(3)}};
  const RankPlan alike{some_memory(), of_unit(1).without_names()};
  EXPECT_EQ(format_plan_table(named, WorldSize{2}), format_plan_table({alike, alike}, WorldSize{2}));
}

TEST(CommPlans, AreGroupedByKindDtypeElementsAndRanks) {
  CommPlan expected;
  expected.add({CommKind::all_reduce, DType::f32, Elements(250'000), WorldSize{2}}, 4);
  EXPECT_TRUE(of_unit(1).without_names() == expected);
  EXPECT_FALSE(of_unit(1) == of_unit(3));
}

TEST(MovedBytes, DependOnTheRankWhereSlicesDiffer) {
  CommPlan plan;
  plan.add({CommKind::all_reduce, DType::f64, Elements(4), WorldSize{3}}, 2);  // slices of 2, 2, 0
  EXPECT_EQ(moved_bytes(plan, Way::wire, Rank{0}), Bytes(2 * 8 * (4 - 2 + 2 * 2)));
  EXPECT_EQ(moved_bytes(plan, Way::wire, Rank{2}), Bytes(2 * 8 * 4));
  EXPECT_EQ(moved_bytes(plan, Way::wire, Rank{5}), Bytes(2 * 8 * 4)) << "the last of the next three";
  CommPlan apart;  // every second rank of six
  apart.add({.kind = CommKind::all_reduce,
             .dtype = DType::f64,
             .elements = Elements(4),
             .ranks = WorldSize{3},
             .stride = 2});
  EXPECT_EQ(moved_bytes(apart, Way::wire, Rank{2}), Bytes(8 * (4 - 2 + 2 * 2)));
  EXPECT_EQ(moved_bytes(apart, Way::wire, Rank{5}), Bytes(8 * 4));
  CommPlan alone;
  alone.add({CommKind::all_reduce, DType::f64, Elements(4), WorldSize{1}}, 2);
  EXPECT_EQ(moved_bytes(alone, Way::wire, Rank{0}), Bytes(0));
}

// In a group of two of four ranks, a rank moves (2 - 1) / 2 of the tensor and not (4 - 1) / 4.
TEST(MovedBytes, AreThoseOfTheGroupNotOfTheWorld) {
  CommPlan plan;
  plan.add({CommKind::reduce_scatter, DType::f32, Elements(100), WorldSize{2}});
  EXPECT_EQ(moved_bytes(plan, Way::wire, Rank{3}), Bytes(200));
  EXPECT_EQ(moved_bytes(plan, Way::link, Rank{3}), Bytes(0));
}

TEST(CommPlans, LeaveOutOperationsOfNothing) {
  CommPlan plan;
  plan.add({CommKind::all_reduce, DType::f32, Elements(0), WorldSize{2}});
  plan.add({CommKind::all_reduce, DType::f32, Elements(8), WorldSize{2}}, 0);
  EXPECT_TRUE(plan.count.empty());
}

TEST(Rates, AreThoseOfStepsAfterTheWarmUpOrSayThatTheyAreNot) {
  EXPECT_EQ(format_rates({}, 512, 250), "");
  StepRecord step;
  step.tokens = 2048, step.seconds = 0.04;
  std::vector<StepRecord> steps(24, step);
  steps.front().seconds = 0.28;
  EXPECT_EQ(
      format_rates(steps, 512, 250),
      "50.00 ms a step, 80 samples a second, 12.5 s an epoch (mean of 24 steps, the warm-up among them: no "
      "measurement)\n");
  steps.push_back(step);
  EXPECT_EQ(format_rates(steps, 512, 250),
            "40.00 ms a step, 100 samples a second, 10 s an epoch (median of 20 steps after the warm-up, p10 "
            "to p90 "
            "40.00 to 40.00 ms)\n");
}

TEST(Brief, SaysWhatIsHeldAndSentAndWhetherItWasChecked) {
  MemoryPlan memory = some_memory();
  CommPlan operations = some_operations();
  EXPECT_EQ(format_brief(memory, operations, nullptr, Rank{0}),
            "held  rank 0, bytes: 9,500,032 (device), predicted, not checked\n"
            "sent  rank 0, bytes a step: 4,000,032 (wire), predicted, not checked\n");
  memory.add({Purpose::momentum, "momentum", 4000, DType::u8, Place::pinned});
  operations.add({CommKind::to_host, DType::f32, Elements(1000), WorldSize{1}});
  const Measured measured = as_measured(memory, operations);
  EXPECT_EQ(format_brief(memory, operations, &measured, Rank{1}),
            "held  rank 1, bytes: 9,500,032 (device), 4,000 (pinned), as predicted\n"
            "sent  rank 1, bytes a step: 4,000,032 (wire), 4,000 (link), as predicted\n");
}

}  // namespace
}  // namespace sc
