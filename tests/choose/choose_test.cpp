// Which lessons fit, by their plans: against counts by hand; what a step takes; what the command line refuses.
#include <gtest/gtest.h>

#include <algorithm>

#include "common/base/check.h"
#include "common/run/run_shape.h"
#include "lessons/choose/report.h"

namespace sc::choose {
namespace {

const Measured& measured() {
  static const Measured kMeasured = Measured::read("lessons/choose/measured.json");
  return kMeasured;
}

// Four blocks of width 128, 12 rows of 128 tokens a step.
Workload tiny() {
  Workload workload;
  workload.model.tied = false;
  return workload;
}

Machine machine(std::int64_t gpus, Bytes memory) {
  Machine machine{.gpu = gpu_named("H200"), .gpus = gpus, .memory = memory};
  machine.host_memory = Bytes(1'000'000'000'000), machine.disk = 4e9;
  return machine;
}

const Row& row_of(const std::vector<Row>& rows, const std::string& folder) {
  return *std::ranges::find_if(rows, [&](const Row& row) { return row.candidate.plans.folder == folder; });
}

Bytes planned(const Row& row, std::int64_t micro) {
  RunShape shape = row.shape;
  shape.workload.batch.micro = micro;
  return detail::plans_of_stages(row.candidate.plans, shape).front().total() + kBesideThePlan;
}

TEST(Choose, TakesTheLargestMicroBatchThatFits) {
  const Row all = row_of(search(machine(2, Bytes(100'000'000'000)), measured(), tiny()), "02_zero1");
  ASSERT_TRUE(all.fits);
  EXPECT_EQ(all.shape.workload.batch.micro, 6);  // 12 rows, 2 ranks
  EXPECT_EQ(all.shape.workload.activations, Activations::keep);

  const Bytes three = planned(all, 3);
  EXPECT_LT(three, planned(all, 6));
  Machine exact = machine(2, three);
  const Row fits = row_of(search(exact, measured(), tiny()), "02_zero1");
  EXPECT_TRUE(fits.fits);
  EXPECT_LE(fits.needs.device, three);
  exact.memory = three - Bytes(1);
  const Row less = row_of(search(exact, measured(), tiny()), "02_zero1");
  EXPECT_TRUE(less.fits);
  EXPECT_TRUE(less.shape.workload.batch.micro < 3 || less.shape.workload.activations != Activations::keep);
}

TEST(Choose, TheHostIsSharedByAllRanks) {
  Machine host = machine(4, Bytes(100'000'000'000));
  const Row row = row_of(search(host, measured(), tiny()), "05_offload");
  ASSERT_TRUE(row.fits);
  const MemoryPlan one = detail::plans_of_stages(row.candidate.plans, row.shape).front();
  EXPECT_EQ(row.needs.host, 4 * (one.total(Place::pinned) + one.total(Place::host)));
  host.host_memory = Bytes(1'000'000);
  const Row refused = row_of(search(host, measured(), tiny()), "05_offload");
  EXPECT_FALSE(refused.fits);
  EXPECT_NE(refused.reason.find("in the host's memory, 1.00 MB there"), std::string::npos) << refused.reason;
}

TEST(Choose, NothingIsDropped) {
  Machine bare = machine(4, Bytes(100'000'000'000));
  bare.host_memory.reset(), bare.disk.reset();
  for (const std::int64_t gpus : {1, 2, 3, 4, 8}) {
    bare.gpus = gpus;
    const std::vector<Row> rows = search(bare, measured(), tiny());
    EXPECT_EQ(rows.size(), candidates(gpus).size());
    EXPECT_LE(rows.size(), 15U);
    for (const Row& row : rows) {
      EXPECT_NE(row.fits, !row.reason.empty()) << row.candidate.plans.folder;
      EXPECT_EQ(row.candidate.host, row.reason.find("give --host-memory") != std::string::npos);
    }
  }
}

TEST(Choose, WhatRefusesAShapeSaysWhy) {
  Workload tied = tiny();
  tied.model.tied = true;
  const std::vector<Row> rows = search(machine(8, Bytes(100'000'000'000)), measured(), tied);
  EXPECT_EQ(row_of(rows, "08_weight_versions").reason.substr(0, 20), "cannot: model.tied: ");
  EXPECT_EQ(row_of(rows, "07_pipeline").reason.substr(0, 8), "cannot: ");  // 8 stages, 4 blocks
  EXPECT_EQ(row_of(rows, "01_data_parallel").reason,
            "cannot: batch.global=12 rows cannot be shared evenly by 8");
}

TEST(Choose, WhereNothingFitsItNamesWhatWould) {
  const Machine small = machine(1, kBesideThePlan + Bytes(2'000'000));
  EXPECT_EQ(best(search(small, measured(), tiny())), nullptr);
  const std::vector<std::string> fixes = nearest_that_works(small, measured(), tiny());
  ASSERT_FALSE(fixes.empty());
  EXPECT_EQ(fixes.back().substr(0, 13), "--memory 2GB:");
}

TEST(Choose, AdviceTrainsAsOneDeviceDoesAndIsTheSameEveryTime) {
  const Machine eight = machine(2, Bytes(100'000'000'000));
  const std::vector<Row> rows = search(eight, measured(), tiny());
  const Row* chosen = best(rows);
  ASSERT_NE(chosen, nullptr);
  EXPECT_FALSE(chosen->candidate.late);
  for (const Row& row : rows) {
    if (!row.fits || row.candidate.late) continue;
    EXPECT_LE((1 - kAsGood) * row.tokens_per_second(), chosen->tokens_per_second());
  }
  EXPECT_EQ(report_json(rows), report_json(search(eight, measured(), tiny())));
}

// A slow link shows in a step; what backward hides does not.
TEST(Predict, AStepTakesComputeOrMessagesWhicheverIsLonger) {
  Machine two = machine(2, Bytes(100'000'000'000));
  const Row row = row_of(search(two, measured(), tiny()), "03_zero2");
  const Rates slow{.flops = 1e15, .memory = 1e15, .link = 1e6, .host_link = 1e15, .adam = 1e15};
  const auto bytes = static_cast<double>(row.sent.value());
  EXPECT_NEAR(row.candidate.seconds(row.shape, slow), bytes / slow.link, 0.01 * bytes / slow.link);
  Rates quick = slow;
  quick.link = 1e15, quick.call_seconds = 1;
  std::int64_t calls = 0;  // nothing hides them: gathers in the first forward, sums in each backward
  for (const auto& [op, count] : row.candidate.plans.plans->comm_plan(row.shape).count) calls += count;
  EXPECT_NEAR(row.candidate.seconds(row.shape, quick), static_cast<double>(calls), 1e-3);
  quick.call_seconds = 0, quick.flops = 1e9;
  const PassTimes pass = pass_times(row.shape.workload, row.shape.workload.model.layers, true, quick);
  const auto m = static_cast<double>(micro_batches_of(row.shape));
  EXPECT_NEAR(row.candidate.seconds(row.shape, quick), m * (pass.forward + pass.backward), 1e-6 * m);
}

// 1F1B with S equal stages and M micro-batches: (M + S - 1) / M of the time without a bubble.
TEST(Predict, APipelineHasItsBubble) {
  RunShape shape;
  shape.workload = tiny();
  shape.workload.model.vocab = 1, shape.workload.batch.global = 8;
  shape.world = WorldSize{4}, shape.stages = 4;
  const Rates rates{.flops = 1e9, .memory = 1e18, .link = 1e18};
  PipelineOptions options;
  options.split = "uniform";
  const PassTimes block = pass_times(shape.workload, 1, false, rates),
                  last = pass_times(shape.workload, 1, true, rates);
  const double each = block.forward + block.backward, seconds = pipeline_seconds(shape, options, rates);
  EXPECT_GE(seconds, (8 + 3) * each);
  EXPECT_LE(seconds, (8 + 3) * (last.forward + last.backward));
}

TEST(Predict, EveryTimedStepIsPredicted) {
  const std::vector<Checked> all = check(measured());
  EXPECT_GT(all.size(), 40U);
  for (const Checked& row : all)
    EXPECT_LT(std::abs(row.error()), 0.25) << row.step.record << " " << row.step.run;
}

// Of equal steps on two kinds of GPUs, the slower one's takes longer by as much as its products do.
TEST(Predict, ATimedStepIsPredictedForItsOwnGpu) {
  Measured two = measured();
  two.steps.push_back(two.steps.front());
  two.steps.back().gpu = "A100-80GB";
  const std::vector<Checked> all = check(two);
  EXPECT_EQ(all.front().step.gpu, "H200");
  EXPECT_NEAR(all.back().predicted / all.front().predicted, 989.0 / 312.0, 0.3);
}

void expect_refused(std::vector<const char*> words, const std::string& message) {
  words.insert(words.begin(), "choose");
  try {
    parse_options(static_cast<int>(words.size()), words.data());
    FAIL() << message;
  } catch (const InputError& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    EXPECT_EQ(std::string(error.what()), message);
  }
}

TEST(CommandLine, RefusesWithOneMessage) {
  expect_refused({}, "command line: how many GPUs?\n  fix: --gpus 8, or --help");
  expect_refused({"--gpus", "0"}, "--gpus 0: not a number of GPUs, 1 to 1024\n  fix: --gpus 8");
  expect_refused({"--gpus", "8", "--memory", "24"},
                 "--memory 24: a size needs its unit\n  fix: --memory 24GB");
  expect_refused({"--gpus", "8", "--link", "25GB"},
                 "--link 25GB: a rate needs its unit, bytes a second\n  fix: --link 25GB/s");
  expect_refused({"--gpus", "8", "--memory", "1GB", "--memory", "2GB"},
                 "--memory: given twice\n  fix: give it once");
  expect_refused(
      {"--gpus", "8", "--gpu", "H20"},
      "--gpu H20: no such GPU in the table; did you mean H200?\n  fix: one of H200, H100, A100-80GB, "
      "A100-40GB, B200, L40S, L4, RTX4090, RTX3090");
  expect_refused({"--gpus", "8", "--memori", "1GB"},
                 "--memori: there is no such flag; did you mean --memory?\n  fix: --help lists all");
}

// Nothing is advised for a GPU that the build has no kernels for.
TEST(Gpus, TheBuildServesAllOfTheTable) {
  for (const Gpu& gpu : known_gpus())
    EXPECT_TRUE(architectures_serve(STAGECRAFT_GPU_ARCHITECTURES, gpu.capability)) << gpu.name;
}

TEST(CommandLine, TakesTheTablesMemory) {
  const char* const words[] = {"choose", "--gpus", "2", "--gpu", "L4", "--disk", "1.5GB/s"};
  const auto options = parse_options(7, words);
  ASSERT_TRUE(options);
  EXPECT_EQ(options->machine.memory, Bytes(24'000'000'000));
  EXPECT_EQ(options->machine.disk, 1.5e9);
  EXPECT_FALSE(options->machine.link);
}

}  // namespace
}  // namespace sc::choose
