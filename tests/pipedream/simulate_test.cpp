#include <cmath>
#include <limits>
#include <tuple>

#include "pipedream/cost_files.h"
#include "pipedream/error.h"
#include "pipedream/messages.h"
#include "tests/pipedream/support.h"

namespace sc::pipedream {
namespace {

using test::describe, test::error_of, test::expect_numbers, test::expect_texts, test::every_schedule,
    test::written;

constexpr double kRound = 1e-9;  // sums of a few hundred numbers near 1

Costs equal_stages(StageTimes times) { return {.times = {times}}; }

TEST(Simulate, EqualsTheClosedFormulas) {
  // Times are halves and quarters, so that sums are exact. In the third set backward is shorter than forward.
  for (const StageTimes times : {StageTimes{1, 1, 1, 0}, StageTimes{2, 2, 2, 0}, StageTimes{2, 0.5, 0.25, 0},
                                 StageTimes{1, 2, 0.5, 0}}) {
    int known = 0;
    for (const GenerateOptions& o : every_schedule(8)) {
      const std::optional<double> formula = formula_makespan(o, times);
      if (!formula) continue;
      ++known;
      EXPECT_NEAR(simulate(generate(o), equal_stages(times)).makespan, *formula, kRound) << describe(o);
    }
    EXPECT_GT(known, 1000);
  }
}

TEST(Simulate, FourStagesFourMicrobatches) {
  for (const Family family : {Family::gpipe, Family::one_f_one_b}) {
    const Timeline timeline = simulate(generate({.family = family}), {});
    EXPECT_DOUBLE_EQ(timeline.utilization, 16.0 / 28.0);  // 57.1 %, not 75 %
    for (const StageUse& use : timeline.stages) EXPECT_DOUBLE_EQ(use.idle_share, 3.0 / 7.0);
  }
  EXPECT_DOUBLE_EQ(simulate(generate({.family = Family::naive}), {}).utilization, 0.25);
}

TEST(Simulate, TheSteadyStateOfPipeDreamIsNeverIdle) {
  int known = 0;
  for (const GenerateOptions& o : every_schedule(8)) {
    if (!is_asynchronous(o.family) || o.microbatches * o.batches < 2 * o.stages) continue;
    const Timeline timeline = simulate(generate(o), {});
    for (const StageUse& use : timeline.stages)
      EXPECT_NEAR(use.steady_idle.value(), 0, kRound) << describe(o);
    ++known;
  }
  EXPECT_GT(known, 300);
  // The naive schedule idles more than half of the time even in the steady state.
  EXPECT_GT(simulate(generate({.family = Family::naive}), {}).stages[1].steady_idle.value(), 0.5);
  // In GPipe no forward follows a backward, so that no time counts as steady.
  for (const StageUse& use : simulate(generate({.family = Family::gpipe}), {}).stages)
    EXPECT_FALSE(use.steady_idle);
}

TEST(Simulate, NothingOverlapsAndNothingComesTooEarly) {
  Costs costs{.message_bytes = 3, .latency = 0.125, .bandwidth = 4};
  for (const GenerateOptions& o : every_schedule(5)) {
    const Schedule s = generate(o);
    costs.times.assign(static_cast<std::size_t>(o.stages), {});
    for (std::size_t i = 0; i < costs.times.size(); ++i) costs.times[i] = {1.0 + i, 0.5, 0.25 * i, 0.5};
    const Timeline timeline = simulate(s, costs);
    double end = 0;
    for (std::size_t stage = 0; stage < s.actions.size(); ++stage) {
      double free = 0;
      for (std::size_t i = 0; i < s.actions[stage].size(); ++i) {
        const Span span = timeline.spans[stage][i];
        ASSERT_LE(span.start, span.end) << describe(o);
        if (is_message(s.actions[stage][i].kind)) {
          ASSERT_GE(span.start, is_send(s.actions[stage][i].kind) ? free : 0) << describe(o);
          continue;
        }
        ASSERT_GE(span.start, free) << describe(o) << " stage " << stage << " action " << i;
        free = span.end;
      }
      end = std::max(end, free);
    }
    EXPECT_DOUBLE_EQ(timeline.makespan, end) << describe(o);
  }
}

// The makespan is at least the work of the busiest stage, and at least one microbatch's way through all
// stages and back.
TEST(Simulate, MakespanHasLowerBounds) {
  for (const GenerateOptions& o : every_schedule(8)) {
    const Timeline timeline = simulate(generate(o), equal_stages({1, 0.75, 0.5, 0}));
    const double work = 2.25 * o.microbatches * o.batches;
    EXPECT_GE(timeline.makespan + kRound, work) << describe(o);
    EXPECT_GE(timeline.makespan + kRound, o.stages * 1.75 + 0.5 / o.chunks) << describe(o);
    EXPECT_NEAR(timeline.utilization, work / timeline.makespan, kRound) << describe(o);
  }
}

TEST(Simulate, SlowerIsNeverShorter) {
  for (const GenerateOptions& o : every_schedule(5)) {
    const Schedule s = generate(o);
    Costs costs;
    const double base = simulate(s, costs).makespan;
    costs.latency = 0.5;
    const double late = simulate(s, costs).makespan;
    EXPECT_GE(late, base) << describe(o);
    costs.message_bytes = 1;
    costs.bandwidth = 2;
    EXPECT_GE(simulate(s, costs).makespan + kRound, late) << describe(o);
    costs = equal_stages({1, 1, 1, 0.5});
    EXPECT_GE(simulate(s, costs).makespan, base) << describe(o);
  }
}

// Stages may have links of different bandwidths: equal links act as one bandwidth, and a slow link in use
// bounds the makespan alone.
TEST(Simulate, LinksMayDiffer) {
  GenerateOptions o;
  o.stages = 3, o.microbatches = 4;
  const Schedule s = generate(o);
  Costs one{.message_bytes = 6, .bandwidth = 2};
  const Costs free;
  Costs each = one;
  each.bandwidth = 0, each.bandwidths = {2, 2, 2};
  EXPECT_EQ(simulate(s, each).makespan, simulate(s, one).makespan);
  EXPECT_EQ(costs_from_json(to_json(each), "here"), each);
  each.bandwidths = {6e9, 1, 6e9};  // six units a message, where a stage computes for one or two
  const double slow = simulate(s, each).makespan;
  EXPECT_GE(slow, 2 * 6);
  one.bandwidth = 1;
  EXPECT_LT(slow, simulate(s, one).makespan);
  each.bandwidths = {1, 6e9, 6e9};
  EXPECT_GE(simulate(s, each).makespan, 2 * 6);
  each.bandwidths = {6e9, 6e9, 1};  // from the last stage to the first, where one chunk sends nothing
  EXPECT_NEAR(simulate(s, each).makespan, simulate(s, free).makespan, 1e-6);
  const auto refused = [&](const std::vector<double>& bandwidths, double bandwidth) {
    each.bandwidths = bandwidths, each.bandwidth = bandwidth;
    EXPECT_THROW(simulate(s, each), InputError);
  };
  refused({1, 1}, 0), refused({1, 1, 1}, 1), refused({1, -1, 1}, 0);
}

TEST(Simulate, ALinkTakesLatencyAndBytesOverBandwidth) {
  const Schedule s = written({"F0 SA0 F1 SA1 RG0 RG1 B0 B1 step@1", "RA0 RA1 F0 B0 SG0 F1 B1 SG1 step@1"}, 2);
  const Costs costs{.message_bytes = 6, .latency = 0.5, .bandwidth = 2};  // 3.5 units a message
  const Timeline timeline = simulate(s, costs);
  const auto span = [&](std::size_t stage, std::size_t index) { return timeline.spans[stage][index]; };
  expect_numbers({{span(0, 1).start, 1},  // SA0
                  {span(0, 1).end, 4.5},
                  {span(0, 3).start, 4},  // SA1: ready at 2, the link is free at 4
                  {span(0, 3).end, 7.5},
                  {span(1, 0).start, 0},  // RA0: posted at once
                  {span(1, 0).end, 4.5},
                  {span(1, 2).start, 4.5},  // F0
                  {span(1, 4).start, 7.5},  // SG0: the other direction is free
                  {span(1, 4).end, 11},
                  {span(0, 6).start, 11},   // B0
                  {span(1, 5).start, 7.5},  // F1: arrives when B0 ends
                  {span(0, 7).start, 14},   // B1: its gradient was ready at 10.5
                  {timeline.makespan, 16}});
}

TEST(Simulate, AMessageWaitsForItsReceive) {
  const Schedule early =
      written({"F0 SA0 F1 SA1 RG0 B0 RG1 B1 step@1", "RA0 RA1 F0 B0 SG0 F1 B1 SG1 step@1"}, 2);
  const Schedule late =
      written({"F0 SA0 RG0 F1 SA1 B0 RG1 B1 step@1", "RA0 F0 B0 SG0 RA1 F1 B1 SG1 step@1"}, 2);
  Costs costs{.latency = 0.5};
  EXPECT_DOUBLE_EQ(simulate(early, costs).spans[1][5].start, 4.5);  // F1 follows B0 at once
  EXPECT_DOUBLE_EQ(simulate(late, costs).spans[1][5].start, 5);     // RA1 was posted at 4.5
}

TEST(Simulate, UnevenStages) {
  Costs costs{.times = {{1, 1, 1, 0}, {3, 3, 3, 0}}};
  const Timeline timeline =
      simulate(generate({.family = Family::gpipe, .stages = 2, .microbatches = 3}), costs);
  expect_numbers(
      {{timeline.makespan, 1 + 3 * 9 + 2},  // stage 1 never waits; around it one forward and one backward
       {timeline.stages[1].busy, 27},
       {timeline.stages[0].busy, 9},
       {timeline.stages[0].idle_share, 1 - 9.0 / 30},
       {timeline.utilization, 36.0 / 60}});
}

// A stage waits before its first and its last backward if messages take time or an earlier stage is the
// slowest; every additional early forward shortens both waits.
TEST(Simulate, ALongerWarmupHidesMessagesAndAQuickerLastStage) {
  const auto expect = [](const Costs& costs, const std::vector<double>& by_warmup) {
    for (int warmup = 0; warmup < 3; ++warmup)
      EXPECT_NEAR(simulate(generate({.stages = 2, .microbatches = 8, .warmup = warmup}), costs).makespan,
                  by_warmup[static_cast<std::size_t>(warmup)], kRound)
          << warmup;
  };
  Costs late{.latency = 0.5};
  expect(late, {31, 28, 28});
  const auto last_stage = [](const StageTimes& times) { return Costs{.times = {{1, 1, 1, 0}, times}}; };
  expect(last_stage({1, 1, 1, 0}), {27, 27, 27});
  expect(last_stage({0.9, 0.9, 0.9, 0}), {26.4, 24.7, 24.6});
  expect(last_stage({0.7, 1.05, 1.05, 0}), {26.6, 25.4, 25.4});  // fewer blocks, and the head's backward
  expect(last_stage({1.1, 1.1, 1.1, 0}), {29.4, 29.4, 29.4});    // nothing is gained behind the slowest one
}

TEST(Simulate, ChunksShareAStagesTimeAndSplitBackwardIsItsTwoHalves) {
  const Timeline chunks =
      simulate(generate({.family = Family::interleaved, .stages = 2, .microbatches = 2, .chunks = 2}), {});
  EXPECT_DOUBLE_EQ(chunks.stages[0].busy, 6);
  EXPECT_DOUBLE_EQ(chunks.spans[0][0].end, 0.5);
  const Timeline split = simulate(written({"F0 I0 W0 step@1"}, 1), equal_stages({1, 2, 4, 8}));
  expect_numbers({{split.spans[0][1].end, 3},
                  {split.spans[0][2].end, 7},
                  {split.makespan, 15},
                  {split.stages[0].busy, 15}});
}

TEST(Simulate, BytesAreCountsTimesSizes) {
  Costs costs{.bytes = {{10, 100}, {20, 200}}, .message_bytes = 7};
  const Timeline timeline =
      simulate(generate({.family = Family::pipedream, .stages = 2, .microbatches = 8}), costs);
  expect_numbers({{timeline.stages[0].activation_bytes, 2 * 10},
                  {timeline.stages[0].weight_bytes, 2 * 100},
                  {timeline.stages[1].activation_bytes, 1 * 20},
                  {timeline.stages[1].weight_bytes, 1 * 200},
                  {timeline.stages[1].receive_bytes, 2 * 7}});
  const Timeline chunks =
      simulate(generate({.family = Family::interleaved, .stages = 2, .microbatches = 4, .chunks = 2}), costs);
  EXPECT_DOUBLE_EQ(chunks.stages[0].activation_bytes, 5 * 10 / 2.0);
}

TEST(Simulate, ZeroTimesGiveZeroes) {
  const Timeline timeline = simulate(generate({.stages = 2, .microbatches = 2}), equal_stages({0, 0, 0, 0}));
  EXPECT_EQ(timeline.makespan, 0);
  EXPECT_EQ(timeline.utilization, 0);
  EXPECT_EQ(timeline.stages[0].idle_share, 0);
}

TEST(Simulate, RefusesWhatCannotBeClocked) {
  const auto refuse = [](const Schedule& schedule, const Costs& costs) {
    return error_of([&] { simulate(schedule, costs); });
  };
  const Schedule s = generate({.stages = 2, .microbatches = 2});
  const double infinite = std::numeric_limits<double>::infinity();
  const std::string check_it = " | run 'pipedream check' on it: it says where and why",
                    entries = " entries for 2 stages | give one entry for all stages, or one a stage",
                    number = ": a number is negative or not finite | give 0 or more";
  expect_texts({{refuse(written({"F0 B0", "F0 B0"}, 1), {}),
                 "schedule written: the schedule cannot be finished" + check_it},
                {refuse(written({"F0 F1 SA1 SA0", "RA0 RA1 F0 F1"}, 2), {}),
                 "schedule written: a send meets the receive of another value" + check_it},
                {refuse(s, {.times = {{}, {}, {}}}), "costs, times: 3" + entries},
                {refuse(s, {.bytes = {}}), "costs, bytes: 0" + entries},
                {refuse(s, {.times = {{1, 1, -1, 0}}}), "costs, times" + number},
                {refuse(s, {.times = {{1, 1, 1, std::nan("")}}}), "costs, times" + number},
                {refuse(s, {.bytes = {{0, infinite}}}), "costs, bytes" + number},
                {refuse(s, {.bandwidth = -2}), "costs, link" + number}});
}

TEST(Formulas, AreSilentWhereNoneIsKnown) {
  const GenerateOptions uneven{.family = Family::interleaved, .microbatches = 6, .chunks = 2},
      chunked{.family = Family::zb_h1, .chunks = 2}, zb{.family = Family::zb_h1};
  for (const auto& [options, times] :
       std::vector<std::pair<GenerateOptions, StageTimes>>{{uneven, {}},
                                                           {{.family = Family::interleaved, .chunks = 1}, {}},
                                                           {{.family = Family::zb_h1, .microbatches = 3}, {}},
                                                           {chunked, {}},
                                                           {zb, {2, 1, 1, 0}},
                                                           {zb, {1, 1, 2, 0}}})
    EXPECT_FALSE(formula_makespan(options, times)) << describe(options);
  for (const GenerateOptions& options : {uneven, chunked})
    EXPECT_FALSE(formula_activations(options, 0)) << describe(options);
}

// Expected values are from arXiv:2104.04473, section 2.2: with p stages, m microbatches and v chunks, the
// bubble over the ideal time is (p - 1) / (v m).
TEST(Formulas, BubbleFractionsOfThePapers) {
  for (const auto& [o, bubble, by] : std::vector<std::tuple<GenerateOptions, double, double>>{
           {{.family = Family::gpipe, .microbatches = 1}, 0.75, 1e-12},
           {{.family = Family::gpipe, .microbatches = 8}, 0.273, 5e-4},
           {{.family = Family::gpipe, .microbatches = 32}, 0.086, 5e-4},
           {{.family = Family::interleaved, .microbatches = 8, .chunks = 2}, 0.158, 5e-4},
           {{.family = Family::interleaved, .microbatches = 32, .chunks = 2}, 0.045, 5e-4},
           {{.family = Family::gpipe, .stages = 8, .microbatches = 8}, 0.467, 5e-4},
           {{.family = Family::zb_h1}, 1.0 / 5, 1e-12}})  // (S-1) units of 3M + S - 1
    EXPECT_NEAR(1 - 3.0 * o.microbatches / *formula_makespan(o, {}), bubble, by) << describe(o);
}

TEST(Formulas, BytesSent) {
  expect_numbers({{pipeline_bytes(1, 4, 1024, 1024), 2 * 8388608.0},  // 8.4 MB each way
                  {pipeline_bytes(3, 2, 5, 7), 4 * 3 * 2 * 5 * 7.0},
                  {zero3_most_bytes(1, 354823168, 4), 6 * 354823168.0 * 0.75},
                  {zero3_most_bytes(3, 100, 4), 3 * 450.0},
                  {zero3_most_bytes(3, 100, 1), 0},
                  {zero3_least_bytes(1, 100, 4), 4 * 75.0},  // one gather, one reduce-scatter
                  {zero3_least_bytes(3, 100, 4), 8 * 75.0},  // one gather, three reduce-scatters
                  {zero3_least_bytes(3, 100, 1), 0}});
}

}  // namespace
}  // namespace sc::pipedream
