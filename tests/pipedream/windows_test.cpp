// Tests the windows of an endless schedule: for any number of batches, the executed actions pass the checker
// and equal the generator's schedule of that many batches.
#include "pipedream/windows.h"

#include "tests/pipedream/support.h"

namespace sc::pipedream {
namespace {

using test::describe, test::error_of, test::expect_texts;

/// Options of every asynchronous rule, with up to `most` stages and every divisor of M as update_every.
std::vector<GenerateOptions> every_rule(int most) {
  std::vector<GenerateOptions> all;
  for (int stages = 1; stages <= most; ++stages)
    for (int microbatches = stages; microbatches <= stages + 3; ++microbatches)
      for (int every = 1; every <= microbatches; ++every) {
        if (microbatches % every != 0) continue;
        for (const VersionRule rule : {VersionRule::none, VersionRule::stash, VersionRule::vertical_sync})
          all.push_back({.family = Family::pipedream,
                         .stages = stages,
                         .microbatches = microbatches,
                         .versions = rule,
                         .update_every = every});
        if (every >= stages)
          all.push_back({.family = Family::two_bw,
                         .stages = stages,
                         .microbatches = microbatches,
                         .update_every = every});
      }
  return all;
}

/// A stage's computing actions and steps in order; messages, stashes and drops are left out.
std::vector<Action> arithmetic(const std::vector<Action>& list) {
  std::vector<Action> kept;
  for (const Action& a : list)
    if (is_compute(a.kind) || a.kind == Kind::step) kept.push_back(a);
  return kept;
}

TEST(Windows, AreTheGeneratorsScheduleHoweverManyBatches) {
  for (const GenerateOptions& o : every_rule(6)) {
    const Windows windows(o);
    for (int batches = 1; batches <= 7; ++batches) {
      GenerateOptions all = o;
      all.batches = batches;
      const Schedule expected = generate(all), whole = windows.whole(batches);
      const CheckReport report = check(whole);
      EXPECT_TRUE(report.ok()) << describe(all) << '\n' << test::violations(report);
      for (std::size_t s = 0; s < whole.actions.size(); ++s)
        EXPECT_EQ(arithmetic(whole.actions[s]), arithmetic(expected.actions[s]))
            << describe(all) << " stage " << s;
    }
  }
}

TEST(Windows, HoldOneBatchOfForwardsAndSendOneBatchOfActivations) {
  for (const GenerateOptions& o : every_rule(5)) {
    const Windows windows(o);
    for (int stage = 0; stage < o.stages; ++stage)
      for (const std::int64_t t : {0, 1, 2, 3, 40}) {
        int forwards = 0, received = 0, backwards = 0;
        for (const Action& a : windows.window(stage, t)) {
          forwards += a.kind == Kind::forward, backwards += a.kind == Kind::backward;
          received += a.kind == Kind::receive_activation;
          if (a.kind != Kind::forward && a.kind != Kind::receive_activation) continue;
          EXPECT_EQ(a.microbatch / o.microbatches, t)
              << describe(o) << " stage " << stage << ' ' << to_text(a);
        }
        EXPECT_EQ(forwards, o.microbatches);
        EXPECT_EQ(received, stage == 0 ? 0 : o.microbatches);
        EXPECT_EQ(backwards, o.microbatches - (t == 0 ? o.stages - 1 - stage : 0))
            << describe(o) << " window " << t;
      }
  }
}

// A window far into a run equals the first full one with larger numbers, so nothing depends on a run's
// length.
TEST(Windows, RepeatWithShiftedNumbers) {
  const Windows windows({.family = Family::pipedream, .stages = 3, .microbatches = 4});
  const std::vector<Action> near = windows.window(0, 5), far = windows.window(0, 1005);
  ASSERT_EQ(near.size(), far.size());
  for (std::size_t i = 0; i < near.size(); ++i) {
    const bool counts = near[i].microbatch != kNoMicrobatch;
    EXPECT_EQ(far[i].kind, near[i].kind);
    EXPECT_EQ(far[i].microbatch, near[i].microbatch + (counts ? 4000 : 0));
    EXPECT_EQ(far[i].version, near[i].version + (is_message(near[i].kind) ? 0 : 4000));
  }
}

// Expected versions per stage are those of the papers: none 1, stash S - s, vertical_sync S, two_buffers 2.
TEST(Windows, KeepAsManyVersionsAsTheRuleNeeds) {
  const auto versions = [](const GenerateOptions& o, int stage) {
    return count(Windows(o).proven())[static_cast<std::size_t>(stage)].versions;
  };
  for (int stage = 0; stage < 4; ++stage) {
    GenerateOptions o{.family = Family::pipedream, .stages = 4, .microbatches = 4};
    o.versions = VersionRule::none;
    EXPECT_EQ(versions(o, stage), 1);
    o.versions = VersionRule::stash;
    EXPECT_EQ(versions(o, stage), 4 - stage);
    o.versions = VersionRule::vertical_sync;
    EXPECT_EQ(versions(o, stage), 4);
    EXPECT_EQ(versions({.family = Family::two_bw, .stages = 4, .microbatches = 4}, stage), 2);
  }
}

TEST(Windows, RefuseWhatHasAnEndOrDoesNotFillThePipeline) {
  const auto refuse = [](const GenerateOptions& o) {
    return error_of([&] { Windows w(o); }, ExitCode::usage);
  };
  expect_texts(
      {{refuse({.family = Family::gpipe}), "family:..."},
       {refuse({.family = Family::pipedream, .stages = 4, .microbatches = 3}),
        "microbatches: 3 a batch are fewer than the 4 stages: a batch would not fill the pipeline | choose "
        "at "
        "least 4 microbatches a batch"},
       {refuse({.family = Family::pipedream, .stages = 2, .microbatches = 4, .update_every = 3}),
        "update_every: 3 does not divide the 4 microbatches of a batch | choose a divisor"},
       {refuse({.family = Family::two_bw, .stages = 2, .microbatches = 4, .update_every = 1}),
        "microbatches:..."},
       {error_of([] { generate({.family = Family::gpipe, .update_every = 2}); }, ExitCode::usage),
        "update_every:..."}});
}

}  // namespace
}  // namespace sc::pipedream
