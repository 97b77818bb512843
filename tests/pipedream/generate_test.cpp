// Tests properties of every generated schedule: S and M from 1 to 8, up to 3 chunks, 1 to 3 batches.
#include "pipedream/messages.h"
#include "pipedream/weight_versions.h"
#include "tests/pipedream/support.h"

namespace sc::pipedream {
namespace {

using test::describe, test::error_of, test::expect_texts, test::every_schedule;

TEST(Generated, PassTheChecker) {
  for (const GenerateOptions& o : every_schedule(8)) {
    const Schedule s = generate(o);
    const CheckReport report = check(s);
    EXPECT_TRUE(report.ok()) << describe(o) << '\n' << test::violations(report);
    EXPECT_EQ(s.microbatches, o.microbatches * o.batches);
    EXPECT_EQ(s.name,
              std::string(name_of(o.family)) + (o.warmup > 0 ? "_warmup_" + std::to_string(o.warmup) : ""));
  }
}

TEST(Generated, HoldAsManyActivationsAsTheFormulaSays) {
  int known = 0;
  for (const GenerateOptions& o : every_schedule(8)) {
    const std::vector<StageCounts> counts = count(generate(o));
    for (int stage = 0; stage < o.stages; ++stage) {
      const std::optional<int> formula = formula_activations(o, stage);
      if (!formula) continue;
      ++known;
      EXPECT_EQ(counts[static_cast<std::size_t>(stage)].activations, *formula)
          << describe(o) << " stage " << stage;
    }
  }
  EXPECT_EQ(known, 8949);
}

// Interleaved schedules with rounds that are not full, and ZB-H1 with chunks, have no formula for activations
// held; a stage must still stay within the formula for full rounds of the generator's size.
TEST(Generated, InterleavedNeverHoldsMoreThanFullRounds) {
  for (const GenerateOptions& o : every_schedule(8)) {
    if (o.family != Family::interleaved) continue;
    const int rounds = std::max(1, o.microbatches / o.stages);
    const int round = (o.microbatches + rounds - 1) / rounds;
    const std::vector<StageCounts> counts = count(generate(o));
    for (int stage = 0; stage < o.stages; ++stage) {
      const int bound = (o.chunks - 1) * round + 2 * (o.stages - 1 - stage) + 1;
      EXPECT_LE(counts[static_cast<std::size_t>(stage)].activations, bound)
          << describe(o) << " stage " << stage;
    }
  }
}

// With a warm-up of k, stage s does min(S - s + k, M) forwards before its first backward; the last stage does
// one.
TEST(Generated, AWarmupOfKIsKMoreForwardsOnAllStagesButTheLast) {
  int made = 0;
  for (int stages = 1; stages <= 6; ++stages)
    for (int microbatches = 1; microbatches <= 12; ++microbatches) {
      GenerateOptions o{.stages = stages, .microbatches = microbatches};
      const int most = stages == 1 ? 0 : std::max(0, microbatches - 2);
      EXPECT_EQ(most_warmup(o), most) << describe(o);
      for (o.warmup = 0; o.warmup <= std::min(6, most); ++o.warmup) {
        const Schedule s = generate(o);
        ++made;
        EXPECT_TRUE(check(s).ok()) << describe(o) << '\n' << test::violations(check(s));
        const Schedule compute = without_messages(s);
        for (int stage = 0; stage < stages; ++stage) {
          const std::vector<Action>& list = compute.actions[static_cast<std::size_t>(stage)];
          const auto first = std::find_if(list.begin(), list.end(),
                                          [](const Action& a) { return a.kind == Kind::backward; });
          const int more = stage + 1 < stages ? o.warmup : 0;
          EXPECT_EQ(first - list.begin(), std::min(stages - stage + more, microbatches))
              << describe(o) << " stage " << stage;
        }
      }
      if (most == 0 || o.warmup <= most) continue;
      // The longest warm-up does all forwards first on every stage but the last, so one more forward changes
      // nothing.
      o.warmup = most;
      const Schedule longest = without_messages(generate(o));
      const Schedule gpipe = without_messages(
          generate({.family = Family::gpipe, .stages = stages, .microbatches = microbatches}));
      for (std::size_t stage = 0; stage + 1 < longest.actions.size(); ++stage)
        EXPECT_EQ(longest.actions[stage], gpipe.actions[stage]) << describe(o);
    }
  EXPECT_EQ(made, 6 * 12 + 5 * (1 + 2 + 3 + 4 + 5 + 5 * 6));
}

TEST(Generated, KeepAsManyVersionsAsTheRuleAllows) {
  for (const GenerateOptions& o : every_schedule(8)) {
    const Schedule s = generate(o);
    const std::vector<StageCounts> counts = count(s);
    for (int stage = 0; stage < o.stages; ++stage) {
      const int alive = counts[static_cast<std::size_t>(stage)].versions;
      int expected = versions_allowed(s, stage);
      // A stage keeps an older version only while a microbatch still reads it, so few microbatches bound the
      // versions.
      if (o.family == Family::pipedream)
        expected = std::min(expected, std::max(1, s.microbatches - (expected - 1)));
      if (o.family == Family::two_bw) expected = o.batches == 1 ? 1 : 2;
      if (o.family == Family::pipedream && s.microbatches < 2 * s.stages) {
        EXPECT_LE(alive, versions_allowed(s, stage)) << describe(o) << " stage " << stage;
      } else {
        EXPECT_EQ(alive, expected) << describe(o) << " stage " << stage;
      }
    }
  }
}

TEST(Generated, SendEveryActivationAndGradientOnce) {
  for (const GenerateOptions& o : every_schedule(6)) {
    const Schedule s = generate(o);
    std::int64_t sends = 0;
    for (const StageCounts& counts : count(s)) sends += counts.sends;
    EXPECT_EQ(sends, o.stages == 1 ? 0 : 2LL * s.microbatches * (s.positions() - 1)) << describe(o);
  }
}

TEST(Generated, StepOnceABatchOrOnceAMicrobatch) {
  for (const GenerateOptions& o : every_schedule(6)) {
    const int steps = o.family == Family::pipedream ? o.batches * o.microbatches : o.batches;
    for (const StageCounts& counts : count(generate(o))) EXPECT_EQ(counts.steps, steps) << describe(o);
  }
}

// PipeDream with 4 stages and 8 microbatches: which version microbatch k reads follows from the paper's
// update rules (arXiv:1806.03377, section 3.3). Stage s has S - s microbatches in flight, so its forward of
// microbatch k comes after k - (S - s) + 1 steps.
TEST(Generated, PipeDreamReadsTheVersionsOfThePaper) {
  for (const VersionRule rule : {VersionRule::none, VersionRule::stash, VersionRule::vertical_sync}) {
    const Schedule s =
        generate({.family = Family::pipedream, .stages = 4, .microbatches = 8, .versions = rule});
    for (const std::vector<Action>& list : s.actions)
      for (const Action& a : list) {
        if (!is_compute(a.kind)) continue;
        const int at_forward = std::max(0, a.microbatch - (4 - a.stage) + 1);
        const int at_entry = std::max(0, a.microbatch - 3);
        const int newest = a.kind == Kind::forward ? at_forward : a.microbatch;
        const int expected = rule == VersionRule::none    ? newest
                             : rule == VersionRule::stash ? at_forward
                                                          : at_entry;
        EXPECT_EQ(a.version, expected) << name_of(rule) << " stage " << a.stage << ' ' << to_text(a);
      }
  }
  EXPECT_EQ(vertical_version(2, 4), 0);
  EXPECT_EQ(vertical_version(5, 4), 2);
}

TEST(Generated, TwoBwReadsTheVersionBeforeTheNewest) {
  const Schedule s = generate({.family = Family::two_bw, .stages = 3, .microbatches = 4, .batches = 4});
  for (const std::vector<Action>& list : s.actions)
    for (const Action& a : list) {
      if (!is_compute(a.kind)) continue;
      EXPECT_EQ(a.version, std::max(0, a.microbatch / 4 - 1)) << to_text(a);
    }
  EXPECT_EQ(two_buffer_version(3, 4), 0);
  EXPECT_EQ(two_buffer_version(8, 4), 1);
}

TEST(Generated, WorkedExamples) {
  const auto compute = [](const GenerateOptions& o, int stage) {
    return to_text(without_messages(generate(o)).actions[static_cast<std::size_t>(stage)]);
  };
  expect_texts(
      {{compute({.family = Family::naive, .stages = 2, .microbatches = 2}, 0), "F0 B0 F1 B1 step@1"},
       {compute({.family = Family::gpipe, .stages = 2, .microbatches = 2, .batches = 2}, 1),
        "F0 F1 B0 B1 step@1 F2@1 F3@1 B2@1 B3@1 step@2"},
       {compute({.stages = 3, .microbatches = 5, .warmup = 1}, 1), "F0 F1 F2 B0 F3 B1 F4 B2 B3 B4 step@1"},
       {compute({.stages = 3, .microbatches = 5, .warmup = 1}, 2), "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 step@1"},
       {compute({.family = Family::zb_h1, .stages = 3, .microbatches = 4}, 2),
        "F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 W2 W3 step@1"},
       {compute({.family = Family::zb_h1, .stages = 3, .microbatches = 4}, 0),
        "F0 F1 F2 I0 W0 F3 I1 W1 I2 W2 I3 W3 step@1"},
       {compute({.family = Family::interleaved, .stages = 2, .microbatches = 2, .chunks = 2}, 0),
        "F0 F1 F0/1 F1/1 B0/1 B1/1 B0 B1 step@1"},
       {compute({.family = Family::pipedream, .stages = 2, .microbatches = 4}, 0),
        "F0 F1 B0 stash@0 step@1 F2@1 B1 drop@0 stash@1 step@2 F3@2 B2@1 drop@1 stash@2 step@3 B3@2 "
        "drop@2 step@4"},
       {compute({.family = Family::two_bw, .stages = 2, .microbatches = 2, .batches = 3}, 1),
        "F0 B0 F1 B1 stash@0 step@1 F2 B2 F3 B3 drop@0 stash@1 step@2 F4@1 B4@1 F5@1 B5@1 drop@1 step@3"}});
}

// Five microbatches on two stages make rounds of three and two, which is the schedule of six without the
// sixth.
TEST(Generated, InterleavedLeavesOutWhatTheLastRoundLacks) {
  const GenerateOptions six{.family = Family::interleaved, .stages = 2, .microbatches = 6, .chunks = 2};
  GenerateOptions five = six;
  five.microbatches = 5;
  const Schedule s = generate(five);
  EXPECT_EQ(to_text(without_messages(s).actions[1]),
            "F0 F1 F2 F0/1 B0/1 F1/1 B1/1 F2/1 B2/1 F3 B0 F4 B1 B2 F3/1 B3/1 F4/1 B4/1 B3 B4 step@1");
}

TEST(Generated, RefusesWhatHasNoMeaning) {
  const auto refuse = [](const GenerateOptions& o) {
    return error_of([&] { generate(o); }, ExitCode::usage);
  };
  expect_texts(
      {{refuse({.stages = 0}), "stages: 0 is out of range | choose 1 to 1024"},
       {refuse({.stages = 1025}), "stages: 1025 is out of range | choose 1 to 1024"},
       {refuse({.microbatches = 0}), "microbatches: 0 is out of range | choose 1 to 1048576"},
       {refuse({.batches = -1}), "batches: -1 is out of range | choose 1 to 1048576"},
       {refuse({.family = Family::interleaved, .chunks = 65}), "chunks: 65 is out of range | choose 1 to 64"},
       {refuse({.microbatches = 2048, .batches = 1024}),
        "microbatches x batches: 2097152 is out of range | choose 1 to 1048576"},
       {refuse({.stages = 1024, .microbatches = 1 << 20}),
        "stages x chunks x microbatches x batches: 1073741824 is out of range | choose 1 to 4194304"},
       {refuse({.family = Family::gpipe, .chunks = 2}),
        "chunks: gpipe has one chunk a stage | leave chunks at 1, or choose interleaved or zb_h1"},
       {refuse({.family = Family::pipedream, .versions = VersionRule::two_buffers}),
        "versions: pipedream has no rule two_buffers | choose none, stash or vertical_sync"},
       {refuse({.family = Family::pipedream, .versions = VersionRule::flush}),
        "versions: pipedream has no rule flush | choose none, stash or vertical_sync"},
       {refuse({.family = Family::two_bw, .stages = 4, .microbatches = 3}),
        "microbatches: two weight versions need an update every M >= S microbatches, here M = 3 and S = "
        "4 | choose at least 4 "
        "microbatches a batch"}});
  const std::string allow = " more forwards are the most that stages = ";
  expect_texts(
      {{refuse({.microbatches = 8, .warmup = 7}),
        "warmup: 7 is out of range: 6" + allow + "4 and microbatches = 8 allow | choose 0 to 6"},
       {refuse({.warmup = -1}),
        "warmup: -1 is out of range: 2" + allow + "4 and microbatches = 4 allow | choose 0 to 2"},
       {refuse({.stages = 1, .microbatches = 8, .warmup = 1}),
        "warmup: 1 is out of range: 0" + allow + "1 and microbatches = 8 allow | leave warmup at 0"}});
  for (const Family family : kFamilies) {
    if (family == Family::one_f_one_b) continue;
    EXPECT_EQ(refuse({.family = family, .microbatches = 8, .chunks = 1, .warmup = 1}),
              "warmup: 1f1b alone has a warm-up that can be longer, and this is " +
                  std::string(name_of(family)) + " | leave warmup at 0, or choose 1f1b");
  }
}

}  // namespace
}  // namespace sc::pipedream
