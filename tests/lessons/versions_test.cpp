// Tests lesson 08 against one process that keeps every version: the four rules of weight versions, to the
// bit.
#include "common/pipeline/split.h"
#include "lessons/08_weight_versions/weight_versions.h"
#include "lessons/reference/reference_order.h"
#include "pipedream/schedule_file.h"
#include "tests/lessons/versions_support.h"
#include "tests/storage/temp_dir.h"
#include "tests/support/answers.h"

namespace sc {
namespace {

using pipedream::VersionRule, test::kRules, test::rule, test::workload_of;

constexpr std::int64_t kVersionsSteps = 5;

RunShape on_stages(const Workload& w, int stages, int stage) {
  return test::shape_for(w, stages, stage, CommBackend::local,
                         Mesh(WorldSize{stages}, {{Axis::stages, stages}}));
}

void expect_versions_equal(const Workload& w, int stages, const VersionOptions& options,
                           const test::Wrap& wrap = {}) {
  SCOPED_TRACE(std::string(name_of(options.versions)) + ", " + std::to_string(stages) + " stages, " +
               std::to_string(w.batch.global / w.batch.micro) + " micro-batches, an update every " +
               std::to_string(options.update_every));
  const std::vector<test::RankResult> found =
      test::run_local<WeightVersions>(stages, w, options, kVersionsSteps, wrap);
  test::expect_equals_reference(found, test::stale_reference(w, stages, options, kVersionsSteps));
  const std::int64_t micro = w.batch.global / w.batch.micro,
                     every = options.update_every > 0                       ? options.update_every
                             : options.versions == VersionRule::two_buffers ? micro
                                                                            : 1;
  for (std::size_t step = 0; step < found[0].rates.size(); ++step)  // a step's last update's
    EXPECT_EQ(found[0].rates[step],
              learning_rate(w.optim, (static_cast<std::int64_t>(step) + 1) * (micro / every) - 1,
                            w.steps * (micro / every)));
  EXPECT_EQ(found[0].rates.size(), found[0].losses.size());
}

class VersionsOfStages : public ::testing::TestWithParam<int> {};

// Every rule, with as few micro-batches as there are stages and with more, with clipping and without.
TEST_P(VersionsOfStages, EveryRuleEndsInTheBitsOfItsFormula) {
  const int stages = GetParam();
  for (const std::int64_t micro : {std::max(2, stages), stages + 3}) {
    Workload w = workload_of(5, micro);
    for (const VersionRule versions : kRules) expect_versions_equal(w, stages, rule(versions));
    w.optim.clip = 0;
    expect_versions_equal(w, stages, rule(VersionRule::stash));
  }
}
INSTANTIATE_TEST_SUITE_P(Stages, VersionsOfStages, ::testing::Values(1, 2, 3, 4));

TEST(WeightVersions, UpdatesMayBeEverySoManyMicroBatches) {
  for (const std::int64_t every : {1, 2, 3, 6})
    for (const VersionRule versions : kRules) {
      if (versions == VersionRule::two_buffers && every < 3) continue;
      expect_versions_equal(workload_of(5, 6), 3, rule(versions, every));
    }
}

TEST(WeightVersions, EveryModelEndsInTheSameBits) {
  test::for_each_model([](Workload w) {
    w.model.layers = 5, w.model.tied = false;
    w.batch.global = 4 * w.batch.micro;
    for (const VersionRule versions : kRules) {
      if (versions == VersionRule::none && w.activations == Activations::recompute) continue;
      expect_versions_equal(w, 3, rule(versions));
    }
  });
}

TEST(WeightVersions, SixteenBitsBesideFp32) {
  Workload w = workload_of(4, 4);
  w.precision = {.dtype = DType::bf16, .grad_dtype = DType::f32, .reduce_dtype = DType::f32};
  for (const VersionRule versions : kRules) expect_versions_equal(w, 3, rule(versions));
}

TEST(WeightVersions, EverySplitEndsInTheSameBits) {
  for (const char* split : {"uniform", "1,5,1", "4,2,1"})
    expect_versions_equal(workload_of(7, 4), 3, {.versions = VersionRule::stash, .split = split});
}

TEST(WeightVersions, DelaysChangeNothing) {
  for (int k = 0; k < 10; ++k)
    for (const VersionRule versions : kRules)
      expect_versions_equal(workload_of(5, 5), 4, rule(versions), test::delayed);
}

// The rules are four algorithms: from the update on in which stage 0 sees its first other version, no two
// agree.
TEST(WeightVersions, TheRulesDiffer) {
  const Workload w = workload_of(4, 4);
  std::vector<test::RankResult> ends;
  for (const VersionRule versions : kRules)
    ends.push_back(test::stale_reference(w, 4, rule(versions), kVersionsSteps));
  for (std::size_t a = 0; a < ends.size(); ++a)
    for (std::size_t b = 0; b < a; ++b) EXPECT_FALSE(test::bit_equal(ends[a], ends[b])) << a << " and " << b;
}

// One stage has nothing in flight: an update per micro-batch is lesson 00 with batches of one micro-batch,
// and two buffers with one update per step are one step behind.
TEST(WeightVersions, OneStageIsLessonZeroWithSmallBatches) {
  const Workload w = workload_of(4, 3);
  Workload small = w;
  small.batch.global = w.batch.micro, small.steps = 3 * w.steps;
  LocalWorld world(1);
  const std::unique_ptr<Communicator> comm = world.communicator(Rank{0});
  test::Alone<ReferenceOrder> zero(*comm, test::shape_for(small, 1, 0, CommBackend::local), {});
  for (std::int64_t step = 0; step < kVersionsSteps; ++step)
    for (std::int64_t j = 0; j < 3; ++j) {
      Batch batch = test::made_up_batch(w, step, j);
      batch.scale = at::full({}, 1.0 / static_cast<double>(batch.with_loss), at::kFloat);
      zero.scalars.lr.fill_(learning_rate(small.optim, 3 * step + j, small.steps));
      zero.lesson.train_step({&batch, 1});
    }
  test::RankResult expected;
  for (StateSlice& slice : zero.lesson.state()) {
    if (slice.purpose == Purpose::gradients || slice.purpose == Purpose::workspace) continue;
    slice.values = in_tensor(slice.copy());
    expected.state.push_back(std::move(slice));
  }
  for (const VersionRule versions : {VersionRule::none, VersionRule::stash, VersionRule::vertical_sync})
    EXPECT_TRUE(test::bit_equal(test::run_local<WeightVersions>(1, w, rule(versions), kVersionsSteps).at(0),
                                expected));
}

// Stage s of S has S - 1 - s updates ahead of it as soon as a micro-batch finds so many; before that, as many
// as there have been.
TEST(WeightVersions, CountsHowManyUpdatesBehindTheWeightsWere) {
  constexpr std::int64_t kMicro = 5;
  for (const int stages : {2, 3, 4}) {
    const Workload w = workload_of(4, kMicro);
    const std::vector<test::RankResult> found =
        test::run_local<WeightVersions>(stages, w, rule(VersionRule::stash), kVersionsSteps);
    ASSERT_TRUE(found[0].timetable);
    ASSERT_EQ(found[0].timetable->versions.size(), static_cast<std::size_t>(stages));
    for (int stage = 0; stage < stages; ++stage) {
      const std::int64_t behind = stages - 1 - stage;
      std::map<std::int64_t, std::int64_t> expected;
      for (std::int64_t m = 0; m < kVersionsSteps * kMicro; ++m) ++expected[std::min(m, behind)];
      const VersionsRead& read = found[0].timetable->versions[static_cast<std::size_t>(stage)];
      EXPECT_EQ(read.forward, expected) << stages << " stages, stage " << stage;
      EXPECT_EQ(read.backward, expected) << stages << " stages, stage " << stage;
    }
  }
  // Without versions a backward reads the newest weights.
  const std::vector<test::RankResult> newest =
      test::run_local<WeightVersions>(3, workload_of(4, kMicro), rule(VersionRule::none), kVersionsSteps);
  ASSERT_TRUE(newest[0].timetable);
  for (const VersionsRead& read : newest[0].timetable->versions)
    EXPECT_EQ(read.backward, (std::map<std::int64_t, std::int64_t>{{0, kVersionsSteps * kMicro}}));
}

// The prediction before a run has updates, versions, whose norm clips, and with a file of costs the time of a
// step in the steady state: M (f + b), and one update, or one after each micro-batch.
TEST(WeightVersions, PredictsUpdatesVersionsAndTime) {
  const sc::test::TempDir dir;
  const Workload w = workload_of(8, 4);
  const auto predicted = [&](const VersionOptions& options, int stages) {
    return WeightVersionsPlans(options).predict(on_stages(w, stages, 0));
  };
  EXPECT_EQ(predicted(rule(VersionRule::stash), 4),
            "updates: one per micro-batch, 4 a step, 80 in all: warm-up and decay count them\n"
            "versions of the weights, by stage: 4, 3, 2, 1\n"
            "clipping by the norm of 3 updates before; the first 3 are not clipped\n");
  EXPECT_EQ(predicted(rule(VersionRule::none), 1),
            "updates: one per micro-batch, 4 a step, 80 in all: warm-up and decay count them\n"
            "versions of the weights, by stage: 1\n");
  VersionOptions two = rule(VersionRule::two_buffers);
  two.costs = (dir / "costs.json").string();
  pipedream::write_text(
      two.costs,
      R"({"times": [{"forward": 0.01, "backward_input": 0.01, "backward_weights": 0.01, "step": 0.02}]})");
  EXPECT_EQ(predicted(two, 2),
            "updates: one every 4 micro-batches, 1 a step, 20 in all: warm-up and decay count them\n"
            "versions of the weights, by stage: 2, 2\n"
            "clipping by the norm of 1 update before; the first is not clipped\n"
            "time of a step, by " +
                two.costs + "\n  140.00 ms, idle 0.0 %, 257 tokens a second\n");
  two.versions = VersionRule::stash;
  EXPECT_NE(predicted(two, 2).find("\n  200.00 ms, idle 0.0 %"), std::string::npos) << predicted(two, 2);
}

TEST(WeightVersions, RefusesWhatHasNoMeaning) {
  struct Case {
    VersionOptions options;
    int stages;
    std::string said;
    std::function<void(Workload&)> spoil = [](Workload&) {};
  };
  for (const Case& c : std::vector<Case>{
           {rule(VersionRule::stash), 4, "taken"},
           {rule(VersionRule::stash), 5, "64 batch.micro:..."},
           {rule(VersionRule::two_buffers), 5, "64 batch.micro:..."},
           {rule(VersionRule::stash), 2, "64 model.tied:...", [](Workload& w) { w.model.tied = true; }},
           {rule(VersionRule::stash), 2, "64 precision.dtype:...",
            [](Workload& w) {
              w.precision = {.dtype = DType::f16, .grad_dtype = DType::f16, .reduce_dtype = DType::f16};
            }},
           {rule(VersionRule::stash), 2, "64 optim.nonfinite:...",
            [](Workload& w) { w.optim.nonfinite = OnNonFinite::skip; }},
           {rule(VersionRule::none), 2, "64 activations:...",
            [](Workload& w) { w.activations = Activations::recompute; }},
           {rule(VersionRule::stash), 2, "taken",
            [](Workload& w) { w.activations = Activations::recompute; }},
           {rule(VersionRule::stash, 3), 2,
            "64 update_every: 3 does not divide the 4 micro-batches of a step"},
           {rule(VersionRule::two_buffers, 1), 2, "64 update_every:..."}}) {
    Workload w = workload_of(5, 4);
    c.spoil(w);
    EXPECT_EQ(test::as_far_as(test::refusal<WeightVersionsPlans>(c.options, w, c.stages), c.said), c.said);
  }
}

}  // namespace
}  // namespace sc
