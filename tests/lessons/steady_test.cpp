// Tests lesson 08 with numbers counted by hand: versions, buffers, messages, what is in flight, idle time.
// There are S stages, M micro-batches per step, and an update for every E of them.
#include <algorithm>

#include "common/pipeline/measured.h"
#include "lessons/07_pipeline/pipeline_plan.h"
#include "lessons/08_weight_versions/versions_read.h"
#include "lessons/08_weight_versions/weight_versions.h"
#include "pipedream/cost_files.h"
#include "pipedream/schedule_file.h"
#include "tests/storage/temp_dir.h"
#include "tests/support/fake_strategy.h"
#include "tests/support/harness.h"

namespace sc {
namespace {

using pipedream::VersionRule;

// A workload with one block per stage, and one row of 9 tokens and width 20 per micro-batch.
Workload workload(int stages, std::int64_t micro_batches) {
  Workload w = test::odd_workload();
  w.model.layers = stages;
  w.model.tied = false;
  w.batch.global = micro_batches;
  return w;
}

VersionOptions options_of(VersionRule rule, std::int64_t every) {
  return {.versions = rule, .update_every = every, .split = "uniform"};
}

RunShape shape_of(int stages, std::int64_t micro_batches, int stage) {
  return test::shape_for(workload(stages, micro_batches), stages, stage, CommBackend::local,
                         Mesh(WorldSize(stages), {{Axis::stages, stages}}));
}

// The elements of a stage with every tensor at a multiple of 64: a block of width 20 has qkv 1216 + 64, proj
// 448 + 64, fc 1600 + 128 and 1600 + 64, four vectors of LayerNorms 256; the first stage also wte 128 x 20
// and wpe 256, the last ln_f 128 and the head 128 x 20.
std::int64_t elements(int stages, int stage) {
  return 5440 + (stage == 0 ? 2560 + 256 : 0) + (stage + 1 == stages ? 128 + 2560 : 0);
}

struct VersionsCase {
  int stages;
  std::int64_t micro_batches, every;
  VersionRule rule;
  std::vector<int> versions;  // by stage, the newest among them
};

// Of S stages, with an update every E micro-batches (`every`), stage s has k = S - 1 - s micro-batches that
// have gone forward and not yet back. stash: just after an update those have read the last ceil(k / E)
// versions, and there is the new one. vertical_sync: every stage keeps what stage 0's micro-batches have
// read: ceil((S - 1) / E), and the new one. two_buffers: 2 for every S. none: 1.
const std::vector<VersionsCase> kVersions = {
    {1, 3, 1, VersionRule::none, {1}},
    {1, 3, 1, VersionRule::stash, {1}},
    {1, 3, 1, VersionRule::vertical_sync, {1}},
    {1, 3, 3, VersionRule::two_buffers, {2}},
    {2, 4, 1, VersionRule::none, {1, 1}},
    {2, 4, 1, VersionRule::stash, {2, 1}},
    {2, 4, 4, VersionRule::stash, {2, 1}},
    {2, 4, 1, VersionRule::vertical_sync, {2, 2}},
    {2, 4, 2, VersionRule::two_buffers, {2, 2}},
    {3, 6, 2, VersionRule::none, {1, 1, 1}},
    {3, 6, 1, VersionRule::stash, {3, 2, 1}},
    {3, 6, 2, VersionRule::stash, {2, 2, 1}},
    {3, 6, 3, VersionRule::stash, {2, 2, 1}},
    {3, 6, 1, VersionRule::vertical_sync, {3, 3, 3}},
    {3, 6, 2, VersionRule::vertical_sync, {2, 2, 2}},
    {3, 6, 6, VersionRule::vertical_sync, {2, 2, 2}},
    {3, 6, 3, VersionRule::two_buffers, {2, 2, 2}},
    {3, 6, 6, VersionRule::two_buffers, {2, 2, 2}},
    {4, 4, 1, VersionRule::none, {1, 1, 1, 1}},
    {4, 4, 1, VersionRule::stash, {4, 3, 2, 1}},
    {4, 4, 2, VersionRule::stash, {3, 2, 2, 1}},
    {4, 4, 4, VersionRule::stash, {2, 2, 2, 1}},
    {4, 4, 1, VersionRule::vertical_sync, {4, 4, 4, 4}},
    {4, 8, 2, VersionRule::vertical_sync, {3, 3, 3, 3}},
    {4, 4, 4, VersionRule::vertical_sync, {2, 2, 2, 2}},
    {4, 8, 4, VersionRule::two_buffers, {2, 2, 2, 2}},
};

std::string text_of(const VersionsCase& c) {
  return std::string(name_of(c.rule)) + ", " + std::to_string(c.stages) + " stages, " +
         std::to_string(c.micro_batches) + " micro-batches, an update every " + std::to_string(c.every);
}

// Compares the table with the plan, with the lines before a run, and with the peak of a run's ledger.
TEST(VersionCounts, AreThoseOfTheTable) {
  for (const VersionsCase& c : kVersions) {
    SCOPED_TRACE(text_of(c));
    const VersionOptions options = options_of(c.rule, c.every);
    std::string line = "versions of the weights, by stage: ";
    const std::vector<test::RankResult> ran = test::run_local<WeightVersions>(
        c.stages, workload(c.stages, c.micro_batches), options, 3 /* the third is steady */);
    for (int stage = 0; stage < c.stages; ++stage) {
      const int versions = c.versions[static_cast<std::size_t>(stage)];
      line += (stage > 0 ? ", " : "") + std::to_string(versions);
      const Bytes one(4 * elements(c.stages, stage)), older = one * (versions - 1);
      const MemoryPlan plan =
          WeightVersionsPlans(options).memory_plan(shape_of(c.stages, c.micro_batches, stage));
      EXPECT_EQ(plan.of(Purpose::parameters), one) << "stage " << stage;
      EXPECT_EQ(plan.of(Purpose::stash), older) << "stage " << stage;
      const test::RankResult& rank = ran[static_cast<std::size_t>(stage)];
      EXPECT_EQ(rank.peak.at(Purpose::parameters, Place::device), one) << "stage " << stage;
      EXPECT_EQ(rank.peak.at(Purpose::stash, Place::device), older) << "stage " << stage;
      // A checkpoint has, besides the newest version: the older versions, gradients that are being
      // accumulated, and the gradient that the next stage has sent.
      const std::int64_t flying = stage + 1 < c.stages ? 4 * 180 : 0;
      EXPECT_EQ(WeightVersionsPlans(options).facts(shape_of(c.stages, c.micro_batches, stage)).pending,
                older + (c.every > 1 ? one : Bytes(0)) + Bytes(flying))
          << "stage " << stage;
    }
    const std::string text = WeightVersionsPlans(options).predict(shape_of(c.stages, c.micro_batches, 0));
    EXPECT_NE(text.find(line + "\n"), std::string::npos) << text;
    EXPECT_NE(text.find(", " + std::to_string(c.micro_batches / c.every) + " a step, "), std::string::npos)
        << text;
  }
}

// A window of the steady state has M messages in each direction over each edge, a sum over all stages per
// update, and a step's five numbers to the host.
TEST(SteadyMessages, AreThoseOfEachEdge) {
  for (const auto& [micro_batches, every] :
       {std::pair<std::int64_t, std::int64_t>{4, 1}, {4, 2}, {8, 1}, {8, 4}})
    for (int stages = 1; stages <= 4; ++stages)
      for (int stage = 0; stage < stages; ++stage) {
        const int edges = (stage > 0 ? 1 : 0) + (stage + 1 < stages ? 1 : 0);
        CommPlan expected;
        if (edges > 0) {
          expected.add({CommKind::send, DType::f32, Elements(180), WorldSize{stages}}, edges * micro_batches);
          expected.add({CommKind::recv, DType::f32, Elements(180), WorldSize{stages}}, edges * micro_batches);
        }
        expected.add({CommKind::all_reduce, DType::f64, Elements(4), WorldSize{stages}},
                     micro_batches / every);
        expected.add({CommKind::to_host, DType::f64, Elements(5), WorldSize{1}}, 1);
        for (const VersionRule rule : {VersionRule::none, VersionRule::stash, VersionRule::vertical_sync})
          EXPECT_TRUE(WeightVersionsPlans(options_of(rule, every))
                          .comm_plan(shape_of(stages, micro_batches, stage))
                          .without_names() == expected)
              << stages << " stages, stage " << stage << ", M " << micro_batches << ", E " << every;
      }
}

struct InFlightCase {
  int stages;
  std::int64_t micro_batches, every;
  std::int64_t norm_lag;    // updates: ceil((S - 1) / E)
  std::int64_t result_lag;  // windows: the last stage's update is stage 0's S - 1 micro-batches later, and
                            // that again for its norm: ceil(2 norm_lag E / M)
  std::int64_t device,
      host;             // bytes: 8 (2 x 4 (norm_lag + 1) + 4 + 5 (result_lag + 2)); 8 x 5 (result_lag + 2)
  std::int64_t tokens;  // bytes on stage 0: 8 x S x 9
};
constexpr InFlightCase kInFlight[] = {
    {1, 3, 1, 0, 0, 176, 80, 0},    {2, 8, 1, 1, 1, 280, 120, 144}, {2, 2, 2, 1, 2, 320, 160, 144},
    {3, 6, 2, 1, 1, 280, 120, 216}, {3, 4, 1, 2, 1, 344, 120, 216}, {4, 4, 1, 3, 2, 448, 160, 288},
    {4, 4, 4, 1, 2, 320, 160, 288}, {4, 8, 2, 2, 1, 344, 120, 288},
};

TEST(InFlight, NumbersAndTokensAreCounted) {
  for (const InFlightCase& c : kInFlight)
    for (int stage = 0; stage < c.stages; ++stage) {
      SCOPED_TRACE(std::to_string(c.stages) + " stages, stage " + std::to_string(stage) + ", M " +
                   std::to_string(c.micro_batches) + ", E " + std::to_string(c.every));
      const VersionOptions options = options_of(VersionRule::stash, c.every);
      const RunShape shape = shape_of(c.stages, c.micro_batches, stage);
      const Endless endless(shape, options);
      EXPECT_EQ(endless.norm_lag, c.norm_lag);
      EXPECT_EQ(endless.result_lag, c.result_lag);
      std::map<std::string, std::int64_t> items;
      const MemoryPlan plan = WeightVersionsPlans(options).memory_plan(shape);
      for (const Buffer& item : plan.items()) items[item.name] += item.bytes().value();
      EXPECT_EQ(items["sums and results in flight"], c.device);
      EXPECT_EQ(items["results_host"], c.host);
      EXPECT_EQ(items["divisor"], 4);
      EXPECT_EQ(items["tokens in flight"], stage == 0 ? c.tokens : 0);
    }
}

// Stage s of S holds S - s micro-batches between forward and backward: so many sets of activations, and as
// many inputs, of which those that are received are asked for one ahead. A gradient comes from the next
// stage, one goes to the previous stage. This holds for every rule, and for lesson 07's 1F1B, which has M
// micro-batches at most, and asks for a gradient ahead when its forwards have ended.
TEST(InFlight, BuffersAreCounted) {
  for (int stages = 1; stages <= 4; ++stages)
    for (int stage = 0; stage < stages; ++stage) {
      SCOPED_TRACE(std::to_string(stages) + " stages, stage " + std::to_string(stage));
      const int behind = stage > 0 ? 1 : 0, before = stage + 1 < stages ? 1 : 0;
      const auto expect = [&](const Pools& pools, int most, bool ahead) {
        EXPECT_EQ(pools.sets, std::min(most, stages - stage));
        EXPECT_EQ(pools.inputs, std::min(most, stages - stage + behind));
        EXPECT_EQ(pools.grads, behind + before + (ahead ? before : 0));
        EXPECT_EQ(pools.pending, 0);
      };
      for (const VersionRule rule :
           {VersionRule::none, VersionRule::stash, VersionRule::vertical_sync, VersionRule::two_buffers})
        for (const std::int64_t micro_batches : {4, 8})
          expect(Endless(shape_of(stages, micro_batches, stage), options_of(rule, 4)).share.slots.pools, 8,
                 false);
      for (const int micro_batches : {1, 2, 4, 8})
        expect(share_of(shape_of(stages, micro_batches, stage), PipelineOptions{}).slots.pools, micro_batches,
               micro_batches > 1);
    }
}

// Counts stage s's updates after t windows: of t M micro-batches S - 1 - s are not back yet.
TEST(InFlight, UpdatesBehindSoManyWindowsAreCounted) {
  const auto updates = [](int stages, std::int64_t every, int stage, std::int64_t windows) {
    return Endless(shape_of(stages, 4, 0), options_of(VersionRule::stash, every))
        .updates_after(stage, windows);
  };
  const std::int64_t of_stage_0[] = {0, 1, 5, 9, 13}, of_stage_3[] = {0, 4, 8, 12, 16};  // 4 t - 3; 4 t
  const std::int64_t every_second[] = {0, 0, 2, 4, 6};                                   // (4 t - 3) / 2
  for (std::int64_t t = 0; t <= 4; ++t) {
    EXPECT_EQ(updates(4, 1, 0, t), of_stage_0[t]) << t;
    EXPECT_EQ(updates(4, 1, 3, t), of_stage_3[t]) << t;
    EXPECT_EQ(updates(4, 2, 0, t), every_second[t]) << t;
  }
  EXPECT_EQ(updates(4, 1, 1, 1000), 3998);
}

pipedream::Costs costs(const std::vector<pipedream::StageTimes>& times, double latency = 0) {
  return {.times = times, .latency = latency};
}

struct IdleCase {
  int stages;
  std::int64_t every;
  std::vector<pipedream::StageTimes> times;  // forward, two halves of backward, step
  double latency;
  double each;  // seconds of a window, by micro-batch
  double idle;
};

TEST(SteadyIdle, IsWhatTheSlowestStageOrTheLinksLeave) {
  const std::vector<IdleCase> cases = {
      // Equal stages are never idle: f + b for each micro-batch; with an update after each, f + b + u.
      {2, 1, {{1, 1, 1, 0}}, 0, 3, 0},
      {3, 1, {{1, 1, 1, 0}}, 0, 3, 0},
      {4, 1, {{1, 1, 1, 0}}, 0, 3, 0},
      {4, 1, {{1, 2, 3, 0.5}}, 0, 6.5, 0},
      {2, 2, {{1, 1, 1, 1}}, 0, 3.5, 0},
      // The slowest stage sets the pace: 9 of 12, 12 of 18, 18 of 36 are busy.
      {2, 1, {{1, 1, 1, 0}, {2, 2, 2, 0}}, 0, 6, 0.25},
      {3, 1, {{1, 1, 1, 0}, {2, 2, 2, 0}, {1, 1, 1, 0}}, 0, 6, 1 / 3.0},
      {4, 1, {{1, 1, 1, 0}, {1, 1, 1, 0}, {3, 3, 3, 0}, {1, 1, 1, 0}}, 0, 9, 0.5},
      // Only stage 0's update takes time: 3 + 1, and 7 of 8 are busy.
      {2, 1, {{1, 1, 1, 1}, {1, 1, 1, 0}}, 0, 4, 0.125},
      // A micro-batch goes S - 1 edges there and back while S are under way: f + b + 2 (S - 1) / S latencies.
      {2, 1, {{1, 1, 1, 0}}, 1, 4, 0.25},
      {4, 1, {{1, 1, 1, 0}}, 1, 4.5, 1 / 3.0},
  };
  for (const IdleCase& c : cases)
    for (const std::int64_t micro_batches : {4, 8})
      for (const VersionRule rule : {VersionRule::none, VersionRule::stash}) {
        const Endless endless(shape_of(c.stages, micro_batches, 0), options_of(rule, c.every));
        const StepTime steady = endless.steps().time_by(costs(c.times, c.latency));
        SCOPED_TRACE(std::to_string(&c - cases.data()) + ", M " + std::to_string(micro_batches));
        EXPECT_NEAR(steady.seconds, c.each * static_cast<double>(micro_batches), 1e-9);
        EXPECT_NEAR(steady.idle, c.idle, 1e-9);
      }
}

constexpr std::int64_t kSince = 10;  // the run's step that was window 0
constexpr double kMs = 1e-3;

/// The marks that two stages leave of a window of four micro-batches, written out for window 2.
struct Marked {
  std::string name;
  double begin, end;  // ms from the window's beginning
};
// One micro-batch is on its way from stage 0: forward of m reads m - 1 updates, backward of m what its
// forward read. Each takes 1 ms, and 1 ms is idle after each of the three.
const std::vector<Marked> kStage0 = {{"F8@7", 0, 1},     {"B7@6", 1, 2},    {"step@8", 2, 3},     //
                                     {"F9@8", 4, 5},     {"B8@7", 5, 6},    {"step@9", 6, 7},     //
                                     {"F10@9", 8, 9},    {"B9@8", 9, 10},   {"step@10", 10, 11},  //
                                     {"F11@10", 12, 13}, {"B10@9", 13, 14}, {"step@11", 14, 15}};
// On stage 1 forward and update take 1 ms, backward 2 ms, and it is never idle.
const std::vector<Marked> kStage1 = {{"F8@8", 0, 1},     {"B8@8", 1, 3},     {"step@9", 3, 4},     //
                                     {"F9@9", 4, 5},     {"B9@9", 5, 7},     {"step@10", 7, 8},    //
                                     {"F10@10", 8, 9},   {"B10@10", 9, 11},  {"step@11", 11, 12},  //
                                     {"F11@11", 12, 13}, {"B11@11", 13, 15}, {"step@12", 15, 16}};

/// A name such as "F8@7" of window 2, moved later by that many windows of four micro-batches and updates.
std::string later(const std::string& name, std::int64_t windows) {
  pipedream::Action action = pipedream::parse_action(name, 0, "a mark");
  const int more = 4 * static_cast<int>(windows);
  if (action.microbatch != pipedream::kNoMicrobatch) action.microbatch += more;
  action.version += more;
  return to_text(action);
}

/// The begin of window t, in ms: windows 3, 4 and 5 end 20, 16 and 18 ms after the window before.
constexpr double kBegins[] = {0, 16, 32, 52, 68, 86};

/// Two ranks with marks of windows 1 to 5, without one that `left_out` names on rank 0.
Timetable timetable_of_marks(const VersionOptions& options, const std::string& left_out = "",
                             std::int64_t last_window = 5) {
  Timetable table;
  const auto thrown = test::on_ranks(2, [&](Communicator& comm) {
    const int stage = to_int(comm.rank());
    const Endless endless(shape_of(2, 4, stage), options);
    Timeline timeline;
    timeline.keep_recent(kMeasuredSteps);
    const Timeline::Clock::time_point zero{std::chrono::hours(1)};
    const auto at = [&](double ms) { return zero + std::chrono::microseconds(std::llround(1e3 * ms)); };
    for (std::int64_t t = 1; t <= last_window; ++t) {
      timeline.begin_step(kSince + t, {});
      const double begins = kBegins[t];
      const std::vector<Marked>& marks = stage == 0 ? kStage0 : kStage1;
      auto mark = marks.begin();
      for (const pipedream::Action& action : endless.steps().actions(stage, t)) {
        if (!takes_time(action.kind)) {  // a message, which is no stage's time
          timeline.add({}, at(begins - 3), at(begins + 16), "message");
          continue;
        }
        if (mark == marks.end()) break;
        const std::string name = later(mark->name, t - 2);
        if (stage != 0 || name != left_out)
          timeline.add({}, at(begins + mark->begin), at(begins + mark->end), name);
        ++mark;
      }
    }
    VersionsRead read;
    read.forward = {{stage, 5}, {7, 3}}, read.backward = {{stage + 1, 8}};
    const StageOptions of_stage = stage_options(options);
    std::vector<VersionsRead> versions = gather_versions(read, comm);
    Timetable mine =
        timetable_of({.share = endless.share, .options = of_stage, .steps = endless.steps(), .first = kSince},
                     timeline, comm);
    mine.length = "period", mine.versions = std::move(versions);
    if (stage == 0) table = std::move(mine);
  });
  for (const std::exception_ptr& error : thrown) EXPECT_FALSE(error);
  return table;
}

void expect_row(const Timetable::Row& row, const std::string& name, double ms, double idle,
                const std::string& from) {
  EXPECT_EQ(row.name, name);
  EXPECT_NEAR(row.seconds, ms * kMs, 1e-9) << name;
  EXPECT_NEAR(row.idle, idle, 1e-6) << name;
  EXPECT_EQ(row.from, from);
}

TEST(SteadyTimetable, RowsAreCountedByHand) {
  const test::TempDir dir;
  VersionOptions options = options_of(VersionRule::stash, 1);
  options.costs = (dir / "costs.json").string(), options.pace = (dir / "pace.json").string();
  pipedream::write_text(options.costs, R"({"times": [
      {"forward": 0.002, "backward_input": 0.002, "backward_weights": 0.002},
      {"forward": 0.001, "backward_input": 0.001, "backward_weights": 0.001}]})");
  pipedream::write_text(
      options.pace, R"({"times": [{"forward": 0.001, "backward_input": 0.001, "backward_weights": 0.001}]})");
  options.link_ms = 1;
  const Timetable table = timetable_of_marks(options);
  EXPECT_EQ(table.length, "period");
  ASSERT_EQ(table.rows.size(), 4U);
  // The median of 20, 16 and 18 ms is window 5's: 12 + 16 ms are busy out of 2 x 18.
  expect_row(table.rows[0], "measured", 18, 1 - 28 / 36.0,
             "from the end of a step to that of the next, the median of 3");
  // Stage 1 sets the pace, with 4 x 4 ms: 12 + 16 of 2 x 16 are busy.
  expect_row(table.rows[1], "simulated", 16, 0.125,
             "from what the stages took in that step, messages taking no time");
  expect_row(table.rows[2], "predicted", 24, 0.25, "by " + options.costs);  // 4 x 6 ms of stage 0, 4 x 3 of 1
  expect_row(table.rows[3], "paced", 16, 0.25, "by " + options.pace);       // 4 (3 + a latency of 1)
  ASSERT_EQ(table.versions.size(), 2U);
  for (const int stage : {0, 1}) {
    const VersionsRead& read = table.versions[static_cast<std::size_t>(stage)];
    EXPECT_EQ(read.forward, (std::map<std::int64_t, std::int64_t>{{stage, 5}, {7, 3}}));
    EXPECT_EQ(read.backward, (std::map<std::int64_t, std::int64_t>{{stage + 1, 8}}));
  }
  const pipedream::Costs took = pipedream::costs_from_json(table.costs, "costs");
  ASSERT_EQ(took.times.size(), 2U);
  const pipedream::StageTimes expected[] = {{1, 0.5, 0.5, 1}, {1, 1, 1, 1}};
  for (const std::size_t stage : {0, 1}) {
    using Times = pipedream::StageTimes;
    for (const auto part : {&Times::forward, &Times::backward_input, &Times::backward_weights, &Times::step})
      EXPECT_NEAR(took.times[stage].*part, kMs * expected[stage].*part, 1e-9);
  }
}

// The table shows windows 4 and 5 one after the other: all their computations and updates, at the times of
// the marks from the beginning of window 4, and no message.
TEST(SteadyTimetable, ShowsTheActionsOfTwoWindows) {
  const Timetable table = timetable_of_marks(options_of(VersionRule::stash, 1));
  EXPECT_EQ(table.rows.size(), 2U) << "nothing to predict with";
  ASSERT_EQ(table.ranks.size(), 2U);
  for (const std::size_t stage : {0, 1}) {
    const std::vector<Timetable::Span>& spans = table.ranks[stage];
    ASSERT_EQ(spans.size(), 24U);
    for (std::size_t i = 0; i < 24; ++i) {
      const Marked& marked = (stage == 0 ? kStage0 : kStage1)[i % 12];
      const double begins = i < 12 ? 0 : 18;
      EXPECT_EQ(spans[i].name, later(marked.name, i < 12 ? 2 : 3));
      EXPECT_NEAR(spans[i].begin, kMs * (begins + marked.begin), 1e-6) << spans[i].name;
      EXPECT_NEAR(spans[i].end, kMs * (begins + marked.end), 1e-6) << spans[i].name;
      EXPECT_NEAR(spans[i].expected_end - spans[i].expected_begin, kMs * (marked.end - marked.begin), 1e-6)
          << spans[i].name;
      const double later_by = i < 12 ? 0 : 16;
      EXPECT_NEAR(spans[i].expected_begin - spans[i % 12].expected_begin, kMs * later_by, 1e-6);
    }
  }
  const auto first = std::min(table.ranks[0][0].expected_begin, table.ranks[1][0].expected_begin);
  EXPECT_NEAR(first, 0, 1e-9);
}

// A window that lacks a mark does not count, and without two in a row there is no table.
TEST(SteadyTimetable, TakesWholeWindowsAlone) {
  const VersionOptions options = options_of(VersionRule::stash, 1);
  Timetable table = timetable_of_marks(options, "step@23");  // stage 0's last of window 5
  ASSERT_EQ(table.rows.size(), 2U);
  expect_row(table.rows[0], "measured", 16, 0.125,
             "from the end of a step to that of the next, the median of 2");
  EXPECT_EQ(table.ranks.at(0).at(0).name, "F12@11");
  table = timetable_of_marks(options, "F16@15");  // the first of window 4: 2 and 3 remain
  ASSERT_EQ(table.rows.size(), 2U);
  expect_row(table.rows[0], "measured", 20, 1 - 28 / 40.0,
             "from the end of a step to that of the next, the median of 1");
  EXPECT_TRUE(timetable_of_marks(options, "", 2).rows.empty()) << "window 1 is not steady yet";
  EXPECT_EQ(timetable_of_marks(options, "", 3).rows.size(), 2U);
}

}  // namespace
}  // namespace sc
