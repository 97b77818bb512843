// Tests a run's defaults for flags that the command line leaves out, and the mesh of its ranks.
#include "common/run/run_shape.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "common/run/planning.h"
#include "common/run/run_plans.h"
#include "lessons/01_data_parallel/data_parallel_plan.h"
#include "lessons/02_zero1/zero1_plan.h"
#include "lessons/plans.h"
#include "lessons/reference/reference_order.h"
#include "tests/support/answers.h"

namespace sc {
namespace {

TEST(Threads, OneOnACpuAndAShareOfTheCoresBesideAGpu) {
  test::expect_counts({{detail::default_threads(DeviceKind::cpu, 16, WorldSize{1}), 1},
                       {detail::default_threads(DeviceKind::cuda, 16, WorldSize{1}), 16},
                       {detail::default_threads(DeviceKind::cuda, 16, WorldSize{3}), 5},
                       {detail::default_threads(DeviceKind::cuda, 2, WorldSize{4}), 1}});
}

// Two stages of three replicas each: rank = stage x 3 + replica.
TEST(Stages, NeighboursAreReplicas) {
  RunShape shape;
  shape.workload.batch = {.sequence = 8, .global = 12, .micro = 2};
  shape.mesh = Mesh(WorldSize{6}, {{Axis::stages, 2}});
  shape.rank = Rank{4};
  test::expect_counts({{shape.mesh.size(Axis::data), 3},
                       {shape.at(Axis::data), 1},
                       {shape.at(Axis::stages), 1},
                       {micro_batches_of(shape), 2}});
  shape.mesh = Mesh(shape.mesh.world(), {{Axis::stages, 1}});
  test::expect_counts({{shape.at(Axis::data), 4}, {shape.at(Axis::stages), 0}, {micro_batches_of(shape), 1}});
}

// The plan of a set of ranks equals each of its ranks' own plan. Three and eight ranks divide 4 sums
// unevenly, and so do replicas the tied matrix, so some worlds have two sets.
TEST(ExactPlans, RanksOfASetHoldAndSendTheSame) {
  struct Case {
    const char* lesson;
    int world;
    std::vector<std::string> settings;
    std::vector<int> counts;
  };
  for (const Case& of : std::vector<Case>{{"01_data_parallel", 3, {}, {2, 1}},
                                          {"01_data_parallel", 4, {}, {4}},
                                          {"04_zero3", 8, {}, {4, 4}},
                                          {"07_pipeline", 4, {"replicas=2", "states=sharded"}, {1, 1, 1, 1}},
                                          {"10_tensor_parallel", 3, {"tokens=whole"}, {1, 1, 1}},
                                          {"11_combined", 8, {"mesh=2x2x2"}, {2, 2, 2, 2}}}) {
    SCOPED_TRACE(std::string(of.lesson) + " " + std::to_string(of.world));
    const auto plans = lesson_plans_of(of.lesson, of.settings).plans;
    RunShape shape;
    shape.workload.model.heads = 12, shape.workload.model.width = 48, shape.workload.batch.global = 48;
    shape.mesh = plans->mesh(WorldSize{of.world});
    std::vector<int> counts;
    std::vector<std::int64_t> seen;
    for (const RankPlan& set : detail::exact_plans_of(*plans, shape, detail::rank_plans_of(*plans, shape))) {
      counts.push_back(set.ranks.count);
      for (const std::int64_t rank : set.ranks.all()) {
        seen.push_back(rank);
        shape.rank = Rank{static_cast<int>(rank)};
        EXPECT_TRUE(set.memory == detail::plan_of_run(*plans, shape)) << rank;
        const CommPlan own = plans->comm_plan(shape);
        EXPECT_TRUE(set.operations == own) << rank;
        EXPECT_EQ(set.sent(), moved_bytes(own, Way::wire, shape.rank)) << rank;
      }
    }
    EXPECT_EQ(counts, of.counts);
    std::ranges::sort(seen);
    for (std::size_t rank = 0; rank < seen.size(); ++rank) EXPECT_EQ(seen[rank], rank);
    EXPECT_EQ(seen.size(), of.world);
  }
}

// A note appears only if its event cannot fall between this run's first and last step.
TEST(Notes, SayWhatNeverComes) {
  CommandLine line;
  Workload workload;
  workload.steps = 20;
  workload.optim.warmup_steps = 20;
  using Texts = std::vector<std::string>;
  const auto said = [&](std::int64_t first, const Facts& known = {}) {
    return detail::what_never_comes(line, workload, known, first);
  };
  EXPECT_EQ(said(0), Texts{}) << "the last update is at the peak";
  line.checkpoints.every = line.evaluation.every = 10;
  line.sources.settings = {{"verify_replicas", "20", "--set verify_replicas=20"}};
  EXPECT_EQ(said(9), Texts{});
  EXPECT_EQ(said(19), Texts{});
  line.checkpoints.every = line.evaluation.every = 15;
  line.sources.settings[0].value = "21";
  workload.optim.warmup_steps = 40;
  EXPECT_EQ(said(14), (Texts{"verify_replicas=21: the run ends after step 20, and compares none",
                             "optim.warmup_steps=40: the run ends after 20 of them, at 50 % of optim.lr"}));
  EXPECT_EQ(said(15, {.links = {}, .updates_a_step = 2, .notes = {"its own"}}),
            (Texts{"its own", "--save-every 15: the run ends after step 20, without a checkpoint",
                   "--eval-every 15: the run ends after step 20, and evaluates then alone",
                   "verify_replicas=21: the run ends after step 20, and compares none"}));
  EXPECT_EQ(said(20, {.links = {}, .notes = {"its own"}}), Texts{}) << "nothing is trained";
}

// nan@0,3 on two stages: rank 0 has no loss, so its micro-batches are poisoned on the last stage as well.
TEST(Stages, AnInjectedNanReachesTheRankThatHasTheLoss) {
  const Fault fault = Fault::parse("nan@0,3", WorldSize{4});
  RunShape shape;
  shape.mesh = Mesh(WorldSize{4}, {{Axis::stages, 2}});
  for (const int rank : {0, 1, 2, 3}) {
    shape.rank = Rank{rank};
    EXPECT_EQ(detail::poisons(fault, shape, 3), rank % 2 == 0) << rank;
    EXPECT_FALSE(detail::poisons(fault, shape, 2));
  }
  shape.mesh = Mesh(shape.mesh.world(), {{Axis::stages, 1}});
  EXPECT_FALSE(detail::poisons(fault, shape, 3)) << "rank 3 of four data-parallel ones";
  EXPECT_FALSE(detail::poisons(Fault::parse("hang@3,3", WorldSize{4}), shape, 3));
}

// Steps to check, trace and profile are counted from the run's first step, not from step 0.
TEST(TrainJobs, CountFromTheirFirstStep) {
  CommandLine line;
  line.trace = line.profile = true;
  ReferenceOrderPlans plans;
  const detail::AnyLesson lesson{.info = {}, .plans = plans, .make = {}};
  const Launch launch{};
  const BatchPlan batch{};
  detail::TrainJob job{lesson, launch, line, batch, "", ""};
  EXPECT_EQ(job.checked_step(), 1);
  EXPECT_TRUE(job.traces(7));
  EXPECT_FALSE(job.traces(8));
  EXPECT_FALSE(job.profiles(4));
  job.first_step = 100;
  EXPECT_EQ(job.checked_step(), 101);
  EXPECT_TRUE(job.traces(107));
  EXPECT_FALSE(job.traces(108));
  EXPECT_FALSE(job.profiles(104));
  EXPECT_TRUE(job.profiles(105));
}

// A checkpoint of a model of two blocks copies 12 bytes of each element once: replicas divide their copies
// among them, and sharded states are divided already. A unit is rounded up to 64 elements a rank.
TEST(RunPlans, RanksTogetherCopyEachStateOnceForACheckpoint) {
  constexpr std::int64_t kRanks = 4;
  CheckpointFlags asked;
  asked.every = 2;
  RunShape shape;
  shape.mesh = Mesh(WorldSize{kRanks});
  GptConfig& model = shape.workload.model;
  model.layers = 2, model.heads = 2, model.vocab = 128, model.context = 16, model.tied = true;
  DataParallelPlans replicas;
  Zero1Plans slices;
  for (Plans* plans : {static_cast<Plans*>(&replicas), static_cast<Plans*>(&slices)}) {
    for (const std::int64_t width : {64, 256}) {  // with padding, and without
      model.width = width;
      const MemoryPlan own = detail::run_plans_of(*plans, shape, asked).own.memory;
      const std::int64_t elements = 2 * (12 * width * width + 13 * width) + (128 + 16) * width + 2 * width,
                         copy = own.of(Purpose::checkpoint, Place::host).value();
      EXPECT_GE(copy, 12 * elements / kRanks);
      EXPECT_LE(copy, 12 * (elements / kRanks + 4 * 64)) << "width " << width;
    }
  }
}

}  // namespace
}  // namespace sc
