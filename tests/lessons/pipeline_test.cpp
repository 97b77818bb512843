// Tests lesson 07 against lesson 00: any schedule that pipedream proves ends in the same bits, having held
// and sent what it planned.
#include "lessons/07_pipeline/pipeline.h"

#include <random>

#include "common/base/check.h"
#include "common/comm/late_messages.h"
#include "lessons/reference/reference_order.h"
#include "pipedream/check.h"
#include "pipedream/generate.h"
#include "pipedream/messages.h"
#include "pipedream/schedule_file.h"
#include "pipedream/weight_versions.h"
#include "tests/storage/temp_dir.h"
#include "tests/support/answers.h"
#include "tests/support/harness.h"

namespace sc {
namespace {

constexpr std::int64_t kPipelineSteps = 3;

Workload workload_of(std::int64_t layers, std::int64_t micro_batches, std::int64_t replicas) {
  Workload w = test::odd_workload();
  w.model.layers = layers;
  w.batch.global = micro_batches * replicas;
  return w;
}

test::RankResult pipeline_reference(const Workload& w, int stages, std::int64_t replicas) {
  const bool split = stages > 1 && w.model.tied;
  return test::run_local<ReferenceOrder>(
             1, w, {.virtual_ranks = replicas, .tied_sum = split ? TiedSum::split : TiedSum::joint},
             kPipelineSteps)
      .at(0);
}

void expect_pipeline_equals(const test::RankResult& expected, int stages, const Workload& w,
                            const PipelineOptions& options, const test::Wrap& wrap = {}) {
  SCOPED_TRACE(options.schedule + ", warmup " + std::to_string(options.warmup) + ", " +
               std::to_string(stages) + " stages, " + std::to_string(options.replicas) + " replicas, " +
               std::to_string(w.batch.global) + " rows");
  const int world = stages * static_cast<int>(options.replicas);
  test::expect_equals_reference(test::run_local<Pipeline>(world, w, options, kPipelineSteps, wrap), expected);
}

constexpr const char* kFamilies[] = {"naive", "gpipe", "1f1b", "interleaved", "zb_h1"};

class PipelineStages : public ::testing::TestWithParam<int> {};

// One to four stages, even and odd numbers of micro-batches, one and two replicas.
TEST_P(PipelineStages, EveryScheduleEndsInTheSameBits) {
  const int stages = GetParam();
  for (const std::int64_t micro : {1, 5})
    for (const std::int64_t replicas : {1, 2}) {
      const Workload w = workload_of(8, micro, replicas);
      const test::RankResult expected = pipeline_reference(w, stages, replicas);
      for (const char* schedule : kFamilies)
        expect_pipeline_equals(expected, stages, w, {.schedule = schedule, .replicas = replicas});
    }
}
INSTANTIATE_TEST_SUITE_P(Stages, PipelineStages, ::testing::Values(1, 2, 3, 4));

// Warm-ups up to the largest, with which every stage but the last does all forwards first.
TEST_P(PipelineStages, EveryWarmupEndsInTheSameBits) {
  const int stages = GetParam();
  for (const std::int64_t micro : {3, 6})
    for (const std::int64_t replicas : {1, 2}) {
      const Workload w = workload_of(5, micro, replicas);
      const test::RankResult expected = pipeline_reference(w, stages, replicas);
      for (std::int64_t warmup = 1; stages > 1 && warmup <= micro - 2; ++warmup)
        expect_pipeline_equals(expected, stages, w,
                               {.warmup = warmup,
                                .replicas = replicas,
                                .states = warmup % 2 == 0 ? ReplicaStates::sharded : ReplicaStates::whole});
    }
}

// With lesson 02's slices over the replicas of a stage the bits are the same, and each has 1/R of the states.
TEST_P(PipelineStages, ReplicasMayShareTheirStates) {
  const int stages = GetParam();
  for (const std::int64_t replicas : {1, 2, 3}) {
    const Workload w = workload_of(5, 4, replicas);
    const test::RankResult expected = pipeline_reference(w, stages, replicas);
    for (const char* schedule : {"1f1b", "zb_h1"})
      expect_pipeline_equals(expected, stages, w,
                             {.schedule = schedule, .replicas = replicas, .states = ReplicaStates::sharded});
  }
}

// Runs every setting of activations with tied and untied heads and one or two rows per micro-batch.
TEST(Pipeline, EveryModelEndsInTheSameBits) {
  test::for_each_model([](Workload w) {
    w.model.layers = 5;
    const test::RankResult expected = pipeline_reference(w, 2, 1);
    for (const char* schedule : {"1f1b", "interleaved", "zb_h1"})
      expect_pipeline_equals(expected, 2, w, {.schedule = schedule});
    expect_pipeline_equals(expected, 2, w, {.warmup = 1});
  });
}

TEST(Pipeline, EverySplitEndsInTheSameBits) {
  const Workload w = workload_of(7, 4, 1);
  const test::RankResult expected = pipeline_reference(w, 3, 1);
  for (const char* split : {"uniform", "balanced", "1,5,1", "4,2,1"})
    expect_pipeline_equals(expected, 3, w, {.split = split});
}

// Random delays of messages, drawn anew in ten rounds, must not change a bit in any family of schedules.
TEST(Pipeline, DelaysChangeNothing) {
  const Workload w = workload_of(8, 5, 1);
  const test::RankResult expected = pipeline_reference(w, 4, 1);
  for (int k = 0; k < 10; ++k) {
    for (const char* schedule : kFamilies)
      expect_pipeline_equals(expected, 4, w, {.schedule = schedule}, test::delayed);
    expect_pipeline_equals(expected, 4, w, {.warmup = 1 + k % 3}, test::delayed);
  }
}

/// Messages in one direction alone are late, so that they overtake others than with equal delays.
class LateOneWay : public LateMessages {
 public:
  LateOneWay(std::unique_ptr<Communicator> inner, bool up) : LateMessages(std::move(inner), kLate), up_(up) {}
  Ticket issue(const Operation& op, const at::Tensor& from, const at::Tensor& to,
               std::optional<Rank> peer) override {
    if (peer && (*peer < rank()) == up_) return LateMessages::issue(op, from, to, peer);
    return ForwardingCommunicator::issue(op, from, to, peer);
  }

 private:
  static constexpr auto kLate = std::chrono::microseconds(700);
  bool up_;
};

TEST(Pipeline, DelaysInOneDirectionChangeNothing) {
  const Workload w = workload_of(8, 5, 1);
  const test::RankResult expected = pipeline_reference(w, 4, 1);
  for (const bool up : {true, false}) {
    const test::Wrap late = [up](std::unique_ptr<Communicator> comm) {
      return std::make_unique<LateOneWay>(std::move(comm), up);
    };
    for (const char* schedule : kFamilies)
      expect_pipeline_equals(expected, 4, w, {.schedule = schedule}, late);
    expect_pipeline_equals(expected, 4, w, {.warmup = 1}, late);
  }
}

/// A schedule that somebody might write: at each moment one of the computations that could be done next, at
/// random. Backwards ascend, as a gradient's sum demands.
pipedream::Schedule random_schedule(int stages, int microbatches, std::uint64_t seed) {
  pipedream::Schedule schedule{
      .name = "random", .stages = stages, .microbatches = microbatches, .actions = {}};
  schedule.actions.resize(static_cast<std::size_t>(stages));
  std::vector<int> forwards(static_cast<std::size_t>(stages)), backwards = forwards;  // done so far
  std::mt19937_64 random(seed);
  for (int done = 0; done < 2 * stages * microbatches;) {
    const auto s = static_cast<std::size_t>(random() % static_cast<std::uint64_t>(stages));
    const bool backward = random() % 2 == 0;
    const bool first = s == 0, last = s + 1 == static_cast<std::size_t>(stages);
    int& next = backward ? backwards[s] : forwards[s];
    const int limit = backward ? std::min(forwards[s], last ? microbatches : backwards[s + 1])
                               : (first ? microbatches : forwards[s - 1]);
    if (next >= limit) continue;
    schedule.actions[s].push_back({.stage = static_cast<int>(s),
                                   .kind = backward ? pipedream::Kind::backward : pipedream::Kind::forward,
                                   .microbatch = next++});
    ++done;
  }
  return pipedream::with_messages(pipedream::with_versions(schedule, microbatches));
}

// A schedule that a user wrote ends in the same bits, with as many sets of activations as pipedream counts.
TEST(Pipeline, ASchedulesFileRunsWhateverItsOrder) {
  const sc::test::TempDir dir;
  const std::string path = (dir / "mine.json").string();
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    const int stages = 2 + static_cast<int>(seed % 3), micro = 3 + static_cast<int>(seed % 4);
    const pipedream::Schedule schedule = random_schedule(stages, micro, seed);
    ASSERT_TRUE(pipedream::check(schedule).ok()) << seed;
    pipedream::write_text(path, pipedream::to_json(schedule));
    const Workload w = workload_of(5, micro, 1);
    expect_pipeline_equals(pipeline_reference(w, stages, 1), stages, w, {.schedule = "file:" + path});
    for (int s = 0; s < stages; ++s)
      EXPECT_EQ(assign_slots(schedule, s).pools.sets,
                pipedream::count(schedule)[static_cast<std::size_t>(s)].activations)
          << "stage " << s << ", seed " << seed;
  }
}

// Two chunks on one stage: the second reads its input in the first one's set, and again if it is recomputed
// for W, after the first one's backward has ended.
TEST(Pipeline, AnInputInTheSetOfTheChunkBeforeStays) {
  const sc::test::TempDir dir;
  const std::string path = (dir / "mine.json").string();
  pipedream::write_text(path, R"({"schedule": "mine", "stages": 1, "microbatches": 2, "chunks": 2,
      "versions": "flush", "actions":
      [["F0", "F0/1", "I0/1", "B0", "F1", "F1/1", "W0/1", "B1/1", "B1", "step@1"]]})");
  for (const Activations activations : {Activations::keep, Activations::recompute}) {
    Workload w = workload_of(4, 2, 1);
    w.model.tied = false;  // a tied sum would have another order
    w.activations = activations;
    expect_pipeline_equals(pipeline_reference(w, 1, 1), 1, w, {.schedule = "file:" + path});
  }
}

// The micro-batches in flight are those of the literature: min(M, S - s + warmup) under 1F1B, but one on the
// last stage; all of them under GPipe.
TEST(PipelineSlots, HoldWhatTheScheduleKeeps) {
  using pipedream::Family;
  for (const int microbatches : {2, 4, 9}) {
    const auto sets = [&](Family family, int stage) {
      return assign_slots(pipedream::generate({.family = family, .stages = 4, .microbatches = microbatches}),
                          stage)
          .pools.sets;
    };
    for (int s = 0; s < 4; ++s) {
      EXPECT_EQ(sets(Family::naive, s), 1);
      EXPECT_EQ(sets(Family::gpipe, s), microbatches);
      EXPECT_EQ(sets(Family::one_f_one_b, s), std::min(microbatches, 4 - s));
      for (int warmup = 1; warmup <= microbatches - 2; ++warmup) {
        const pipedream::Schedule longer =
            pipedream::generate({.stages = 4, .microbatches = microbatches, .warmup = warmup});
        EXPECT_EQ(assign_slots(longer, s).pools.sets, s == 3 ? 1 : std::min(microbatches, 4 - s + warmup));
      }
    }
  }
  // No two of a schedule's values that are alive at the same time share a buffer: the delays above would show
  // it, and here is the count, next to one chunk's.
  for (const int chunks : {1, 2, 3}) {
    const pipedream::Schedule schedule =
        pipedream::generate({.family = chunks == 1 ? Family::one_f_one_b : Family::interleaved,
                             .stages = 3,
                             .microbatches = 6,
                             .chunks = chunks});
    for (int s = 0; s < 3; ++s)
      EXPECT_EQ(assign_slots(schedule, s).pools.sets,
                pipedream::count(schedule)[static_cast<std::size_t>(s)].activations);
  }
}

// Only the newest schedule is cached: if one number differs, nothing of it is used.
TEST(PipelineSlots, EachPlanHasItsOwnSchedule) {
  using pipedream::Family;
  const std::vector<pipedream::GenerateOptions> asked = {{Family::interleaved, 2, 4, 1, 2},
                                                         {Family::interleaved, 2, 6, 1, 2},
                                                         {Family::interleaved, 2, 6, 1, 3},
                                                         {Family::zb_h1, 2, 6, 1, 3},
                                                         {Family::zb_h1, 3, 6, 1, 3},
                                                         {Family::interleaved, 2, 4, 1, 2},
                                                         {Family::one_f_one_b, 2, 6},
                                                         {.stages = 2, .microbatches = 6, .warmup = 1},
                                                         {.stages = 2, .microbatches = 6, .warmup = 2}};
  for (const pipedream::GenerateOptions& one : asked) {
    const RunShape shape =
        test::shape_for(workload_of(9, one.microbatches, 1), one.stages, 0, CommBackend::local,
                        Mesh(WorldSize{one.stages}, {{Axis::stages, one.stages}}));
    const PipelineOptions options{
        .schedule = std::string(name_of(one.family)), .chunks = one.chunks, .warmup = one.warmup};
    EXPECT_EQ(share_of(shape, options).schedule, pipedream::generate(one));
  }
}

std::string pipeline_refusal(const PipelineOptions& options, const Workload& w, int world) {
  return test::refusal<PipelinePlans>(options, w, world);
}

RunShape on_two_stages(const Workload& w, int world, int rank) {
  return test::shape_for(w, world, rank, CommBackend::local, Mesh(WorldSize{world}, {{Axis::stages, 2}}));
}

TEST(Pipeline, RefusesWhatCannotRunBeforeAnythingIsAllocated) {
  const sc::test::TempDir dir;
  const Workload w = workload_of(5, 4, 1);
  struct Case {
    PipelineOptions options;
    int world;
    std::string said;
  };
  const std::string no_file = "file:" + (dir / "none.json").string();
  std::vector<Case> cases = {
      {{}, 5, "taken"},
      {{}, 6, "64 ..."},
      {{.schedule = "interleaved"},
       3,
       "64 split: 5 blocks cannot be cut into 6 positions (stages x chunks): each has at least one block"},
      {{.split = "2,2,2"},
       3,
       "64 split: 2,2,2 is 3 numbers of 6 blocks in all; there are 3 positions and 5 blocks"},
      {{.split = "3,x,1"}, 3, "64 split: \"x\" is no number of blocks"},
      {{.schedule = "1f1B"}, 2, "64 schedule: there is no schedule \"1f1B\""},
      {{.schedule = "pipedream"}, 2, "64 schedule: pipedream..."},
      {{.chunks = 2}, 2, "64 schedule:..."},  // 1f1b has one chunk
      {{.warmup = 2}, 3, "taken"},
      {{.warmup = 3},
       3,
       "64 schedule: warmup: 3 is out of range: 2 more forwards are the most that stages = 3 and "
       "microbatches = 4 allow"},
      {{.warmup = 1}, 1, "64 schedule: warmup: 1 is out of rang..."},
      {{.replicas = 4}, 2, "64 replicas: 4 replicas on 2 ranks"},
      {{.schedule = no_file}, 2, "64 schedule:..."},
      {{.pace = (dir / "none.json").string()}, 2, "64 pace:..."}};
  for (const char* schedule : {"gpipe", "naive", "zb_h1"})
    cases.push_back({{.schedule = schedule, .warmup = 1},
                     2,
                     "64 schedule: warmup: 1f1b alone has a warm-up that can be longer, and this is " +
                         std::string(schedule)});
  for (const Case& c : cases)
    EXPECT_EQ(test::as_far_as(pipeline_refusal(c.options, w, c.world), c.said), c.said);
  const auto of_file = [&](const std::string& text, int world, bool unchecked = false) {
    pipedream::write_text((dir / "s.json").string(), text);
    return pipeline_refusal({.schedule = "file:" + (dir / "s.json").string(), .unchecked = unchecked}, w,
                            world);
  };
  const std::string deadlock = pipedream::to_json(pipedream::deadlock_send_first());
  const std::string two_steps = pipedream::to_json(pipedream::generate(
      {.family = pipedream::Family::gpipe, .stages = 2, .microbatches = 2, .batches = 2}));
  const std::string stashes = pipedream::to_json(
      pipedream::generate({.family = pipedream::Family::pipedream, .stages = 2, .microbatches = 4}));
  // The first micro-batch's gradient overwrites what is there, so backwards must ascend.
  const std::string descending =
      R"({"schedule": "mine", "stages": 1, "microbatches": 4, "chunks": 1, "versions": "flush", "actions":
          [["F0", "F1", "F2", "F3", "I0", "I1", "W1", "W0", "B2", "B3", "step@1"]]})";
  test::expect_parts(of_file(deadlock, 4), {"deadlock: stage "});
  test::expect_parts(of_file(deadlock, 2), {"is for 4 stages and 4 micro-batches; this run has 2 and 4"});
  test::expect_parts(of_file(two_steps, 2), {"a list of this lesson has one step"});
  test::expect_parts(of_file(descending, 1), {"W0 comes after the backward of microbatch 1"});
  test::expect_parts(of_file(stashes, 2), {"several versions"});
  test::expect_texts({{of_file("{ \"schedule\": ", 2), "65 schedule:..."},
                      {of_file(deadlock, 4, true), "taken"},       // to see it hang
                      {of_file(descending, 1, true), "65 ..."}});  // unchecked is about deadlocks alone
  const std::string written = (dir / "written.json").string();
  pipedream::write_text(written, pipedream::to_json(pipedream::generate({.stages = 2, .warmup = 1})));
  EXPECT_EQ(pipeline_refusal({.schedule = "file:" + written}, w, 2), "taken");
  EXPECT_EQ(pipeline_refusal({.schedule = "file:" + written, .warmup = 1}, w, 2),
            "64 warmup: " + written + " says itself when its stages begin backward");
  const std::string costs = (dir / "costs.json").string();
  pipedream::write_text(costs, R"({"times": [{"forward": 1, "backward_input": 1, "backward_weights": 1},
                                             {"forward": 1, "backward_input": 1, "backward_weights": 1}]})");
  EXPECT_EQ(pipeline_refusal({.costs = costs}, w, 2), "taken");
  EXPECT_NE(pipeline_refusal({.costs = costs}, w, 3).find("2 entries for 3 stages"), std::string::npos);
}

TEST(PipelineSplit, CountsTheHead) {
  Workload w = workload_of(24, 4, 1);
  w.model.width = 1024, w.model.vocab = 50257, w.batch.sequence = w.model.context = 1024;
  const auto blocks = [&](int positions, const std::string& split) {
    std::vector<int> n;
    for (const Part& part : cut_blocks(w, positions, split)) n.push_back(part.blocks);
    return n;
  };
  EXPECT_EQ(blocks(4, "uniform"), (std::vector{6, 6, 6, 6}));
  EXPECT_EQ(blocks(4, "7,7,7,3"), (std::vector{7, 7, 7, 3}));
  EXPECT_EQ(blocks(4, "balanced").back(), 3) << "the head is as much as four blocks";
  EXPECT_EQ(blocks(24, "balanced"), std::vector<int>(24, 1));
  EXPECT_EQ(cut_blocks(w, 2, "20,4")[1], (Part{21, 4}));
  // Scores count: with 24 d d + 2 T d operations a block is more than this head, with 24 d d it is less.
  w.model.layers = 4, w.model.width = 8, w.model.vocab = 128, w.batch.sequence = 96;
  EXPECT_EQ(blocks(2, "balanced"), (std::vector{2, 2}));
  w.model.layers = 1001;
  EXPECT_EQ(blocks(2, "1000,1"), (std::vector{1000, 1}));
}

TEST(Pipeline, TheLastLocalGradientIsThatOfAStagesFirstInput) {
  test::Around around;
  around.between = [](Strategy& strategy, Communicator& comm, auto&&...) {
    const StateSlice last = strategy.state().front();
    EXPECT_EQ(last.purpose, Purpose::workspace);
    EXPECT_EQ(last.unit, comm.rank() == Rank{0} ? 0 : 2) << "the unit before the stage's first block";
  };
  test::run_local<Pipeline>(2, workload_of(4, 2, 1), {}, 1, {}, {}, around);
}

TEST(Pipeline, SixteenBitsBesideFp32) {
  Workload w = workload_of(4, 3, 2);
  w.precision = {.dtype = DType::bf16, .grad_dtype = DType::f32, .reduce_dtype = DType::f32};
  for (const bool tied : {true, false}) {
    w.model.tied = tied;
    const test::RankResult expected = pipeline_reference(w, 2, 2);
    expect_pipeline_equals(expected, 2, w, {.replicas = 2});
    expect_pipeline_equals(expected, 2, w, {.replicas = 2, .states = ReplicaStates::sharded});
  }
}

// Replicas share momentum and variance out; the rest is whole on each.
TEST(Pipeline, SlicesOfStatesAreHalfOfThem) {
  Workload w = workload_of(4, 4, 2);
  const auto bytes = [&](ReplicaStates states, Purpose purpose, int rank) {
    return PipelinePlans({.replicas = 2, .states = states})
        .memory_plan(on_two_stages(w, 4, rank))
        .of(purpose)
        .value();
  };
  const std::int64_t whole = bytes(ReplicaStates::whole, Purpose::momentum, 0);
  EXPECT_EQ(bytes(ReplicaStates::sharded, Purpose::momentum, 0), whole / 2);
  EXPECT_EQ(bytes(ReplicaStates::sharded, Purpose::variance, 1), whole / 2);
  EXPECT_EQ(bytes(ReplicaStates::sharded, Purpose::gradients, 0),
            bytes(ReplicaStates::whole, Purpose::gradients, 0));
  w.model.tied = false;
  EXPECT_EQ(bytes(ReplicaStates::sharded, Purpose::gradients, 2),
            bytes(ReplicaStates::whole, Purpose::gradients, 2))
      << "no copy of a matrix that is not tied";
}

// The prediction before a run is the simulator's makespan with the costs in a file.
TEST(Pipeline, PredictsAStepsTimeFromCosts) {
  const sc::test::TempDir dir;
  const Workload w = workload_of(4, 4, 1);
  const RunShape shape = on_two_stages(w, 2, 0);
  EXPECT_EQ(PipelinePlans().predict(shape), "");
  const std::string path = (dir / "costs.json").string();
  pipedream::write_text(
      path, R"({"times": [{"forward": 0.01, "backward_input": 0.01, "backward_weights": 0.01}]})");
  // The makespan is (M + S - 1)(f + b) = 5 x 30 ms for 4 rows of 9 tokens.
  EXPECT_EQ(PipelinePlans({.costs = path}).predict(shape),
            "time of a step, by " + path + "\n  makespan 150.00 ms, idle 20.0 %, 240 tokens a second\n");
  // One more forward hides the time of messages: without it the step takes 190 ms.
  pipedream::write_text(path, R"({"latency": 0.01, "times": [{"forward": 0.01, "backward_input": 0.01,
                                                              "backward_weights": 0.01}]})");
  EXPECT_NE(PipelinePlans({.warmup = 1, .costs = path}).predict(shape).find("makespan 170.00 ms"),
            std::string::npos);
}

TEST(Pipeline, ABalancedSplitReadsWhatWasMeasured) {
  const sc::test::TempDir dir;
  const std::string path = (dir / "profile.json").string();
  const Workload w = workload_of(4, 4, 1);
  const auto profile = [&](const std::string& layers) {
    pipedream::write_text(path, R"({"profile": "mine", "layers": [)" + layers + "]}");
  };
  const std::string block = R"({"name": "b", "forward": 1, "backward": 2})";
  profile(R"({"name": "e", "forward": 3, "backward": 3, "block": false},)" + block + "," + block + "," +
          block + "," + block + R"(,{"name": "h", "forward": 0, "backward": 0, "block": false})");
  EXPECT_EQ(cut_blocks(w, 2, "balanced", path)[1], (Part{2, 3}))
      << "the embedding's time is the first position's";
  EXPECT_EQ(cut_blocks(w, 2, "balanced")[1], (Part{3, 2}));
  EXPECT_EQ(pipeline_refusal({.split = "uniform", .profile_in = path}, w, 2),
            "64 profile_in: split=uniform does not read it");
  profile(block);
  EXPECT_EQ(pipeline_refusal({.profile_in = path}, w, 2),
            "64 profile_in: " + path + " is a profile of 1 blocks; this model has 4");
  EXPECT_EQ(pipeline_refusal({.profile_in = (dir / "none.json").string()}, w, 2).substr(0, 14),
            "64 profile_in:");
}

}  // namespace
}  // namespace sc
