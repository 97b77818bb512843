// Tests check(): every rule broken one at a time, and two schedules that deadlock on purpose.
#include <algorithm>
#include <map>
#include <numeric>
#include <random>

#include "tests/pipedream/support.h"

namespace sc::pipedream {
namespace {

using test::violations, test::written;

/// A schedule written by hand as lists of actions, with everything that the checker must say of it.
struct Written {
  std::vector<std::string> lists;
  int microbatches;
  std::string said;
  int chunks = 1;
  VersionRule rule = VersionRule::flush;
};

void expect_said(const std::vector<Written>& all) {
  for (const Written& w : all)
    EXPECT_EQ(violations(check(written(w.lists, w.microbatches, w.chunks, w.rule))), w.said) << w.lists[0];
}

constexpr const char* kLower = "F0 SA0 RG0 F1 SA1 RG1 B0 B1 step@1";
constexpr const char* kUpper = "RA0 RA1 F0 B0 SG0 F1 B1 SG1 step@1";

TEST(Check, AcceptsAScheduleWrittenByHand) { expect_said({{{kLower, kUpper}, 2, ""}}); }

TEST(Check, Complete) {
  expect_said(
      {{{"F0 F0 B0 step@1"}, 1, "complete: stage 0, action 1: F0 happens twice\n"},
       {{"F0 B0 step@1"},
        2,
        "complete: stage 0, action 3: microbatch 1 has not one forward and one backward\n"},
       {{"F0 F0/1 B0/1 step@1"},
        1,
        "complete: stage 0, action 4: microbatch 0 has not one forward and one backward\n"
        "step: stage 0, action 3: step@1 applies more microbatches on one chunk than on another\n",
        2},
       {{"F0 I0 F1 B1 W1 step@1"},
        2,
        "order: stage 0, action 4: W1 comes before its backward_input\n"
        "complete: stage 0, action 6: microbatch 0 has not one forward and one backward\n"
        "complete: stage 0, action 6: microbatch 1 has not one forward and one backward\n"},
       {{"F0 I0 B0 W0 step@1"},
        1,
        "complete: stage 0, action 5: microbatch 0 has not one forward and one backward\n"},
       {{"F0 I0 W0 step@1"}, 1, ""},
       {{""}, 1, "complete: stage 0, action 0: microbatch 0 has not one forward and one backward\n"}});
}

TEST(Check, Order) {
  expect_said(
      {{{"B0 F0 step@1"},
        1,
        "order: stage 0, action 0: B0 comes before its forward\n"
        "version: stage 0, action 0: B0 reads another version than its forward, which read -1\n"},
       {{"F0 W0 I0 step@1"}, 1, "order: stage 0, action 1: W0 comes before its backward_input\n"},
       {{"F0 F1 B1 B0 step@1"},
        2,
        "order: stage 0, action 3: B0 comes after the backward of microbatch 1: backwards, and the weights' "
        "halves, of a chunk ascend\n"},
       {{"F0 F1 I0 I1 W1 W0 step@1"},
        2,
        "order: stage 0, action 5: W0 comes after the backward of microbatch 1: backwards, and the weights' "
        "halves, of a chunk ascend\n"},
       {{"F0 F1 I0 B1 W0 step@1"},
        2,
        "order: stage 0, action 4: W0 comes after the backward of microbatch 1: backwards, and the weights' "
        "halves, of a chunk ascend\n"},
       {{"F0 F1 F0/1 F1/1 I0/1 I1/1 I0 W0 I1 W1 W0/1 W1/1 step@1"},
        2,
        "",
        2},  // each chunk has its own order
       {{"F0/1 F0 B0/1 B0 step@1"},
        1,
        "order: stage 0, action 0: F0/1 comes before the forward of the chunk below\n",
        2},
       {{"F0 F0/1 B0 B0/1 step@1"},
        1,
        "order: stage 0, action 2: B0 comes before the backward of the chunk above\n",
        2}});
}

TEST(Check, MessagesOnOneStage) {
  expect_said(
      {{{"F0 SA0 B0 RG0 step@1", "RA0 F0 B0 SG0 step@1"},
        1,
        "message: stage 0, action 2: B0 has no receive before it\n"},
       {{"SA0 F0 RG0 B0 step@1", "RA0 F0 B0 SG0 step@1"},
        1,
        "message: stage 0, action 0: SA0 comes before the action that makes it\n"},
       {{"F0 SA0 RG0 B0 step@1", "RA0 F0 SG0 B0 step@1"},
        1,
        "message: stage 1, action 2: SG0 comes before the action that makes it\n"},
       {{"F0 SA0 RG0 B0 step@1", "RA0 F0 B0 step@1"},
        1,
        "message: stage 1, action 4: SG0 is missing\nmessage: stage 0, action 2: RG0 meets no send\n"},
       {{"F0 RG0 B0 step@1", "F0 B0 SG0 step@1"},
        1,
        "message: stage 0, action 4: SA0 is missing\nmessage: stage 1, action 0: F0 has no receive "
        "before it\n"},
       {{"F0 SA0 RG0 B0 step@1", "F0 B0 SG0 step@1"},
        1,
        "message: stage 1, action 0: F0 has no receive before it\nmessage: stage 0, action 1: SA0 meets "
        "no receive\n"}});
}

// On the last of three stages, two sends of stage 1 are swapped; each still follows the action that makes its
// value.
TEST(Check, SwappedSendsMeetTheWrongReceive) {
  Schedule s = generate({.family = Family::gpipe, .stages = 3, .microbatches = 3});
  std::vector<Action>& list = s.actions[1];
  const auto first =
      std::find_if(list.begin(), list.end(), [](const Action& a) { return a.kind == Kind::send_activation; });
  const auto second =
      std::find_if(first + 1, list.end(), [](const Action& a) { return a.kind == Kind::send_activation; });
  const Action late = *first;
  list.insert(second + 1, late);  // SA1 SA0
  list.erase(list.begin() + (first - list.begin()));
  const std::string text = violations(check(s));
  EXPECT_EQ(text.find("message: stage 1, action "), 0U) << text;
  EXPECT_NE(text.find("SA1 meets RA0 of stage 2 (both are number 0 between the two stages)"),
            std::string::npos)
      << text;
}

TEST(Check, DeadlockOfTwoStages) {
  const CheckReport report = check(deadlock_send_first());
  EXPECT_EQ(violations(report),
            "deadlock: stage 2, action 5: SA1 never ends: 2 stages wait for each other in a ring\n");
  ASSERT_EQ(report.cycle.size(), 2U);
  EXPECT_EQ(to_text(report.cycle[0]), "stage 2, action 5: SA1 waits until stage 3 posts RA1");
  EXPECT_EQ(to_text(report.cycle[1]), "stage 3, action 3: SG0 waits until stage 2 posts RG0");
}

TEST(Check, DeadlockOfARing) {
  const CheckReport report = check(deadlock_ring());
  EXPECT_EQ(violations(report),
            "deadlock: stage 0, action 7: SA3 never ends: 4 stages wait for each other in a ring\n");
  ASSERT_EQ(report.cycle.size(), 4U);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(report.cycle[i].for_stage, report.cycle[(i + 1) % 4].stage);
    EXPECT_TRUE(is_send(report.cycle[i].action.kind));
  }
  EXPECT_EQ(to_text(report.cycle[3]), "stage 3, action 2: SA0 waits until stage 0 posts RA0/1");
}

// A deadlock names a compute action as waiting for the action that makes its value, not for a receive.
TEST(Check, DeadlockOfComputeActions) {
  const CheckReport report =
      check(written({"F0 SA0 RG0 RG1 B0 F1 SA1 B1 step@1", "RA0 RA1 F0 F1 B0 SG0 B1 SG1 step@1"}, 2));
  ASSERT_EQ(report.cycle.size(), 2U);
  EXPECT_EQ(to_text(report.cycle[0]), "stage 0, action 4: B0 waits until stage 1 does SG0");
  EXPECT_EQ(to_text(report.cycle[1]), "stage 1, action 3: F1 waits until stage 0 does SA1");
}

// Stage 0 has finished its list, which lacks backwards, when the other two are stuck: the ring named leaves
// it out.
TEST(Check, DeadlockBehindAStageThatHasFinished) {
  const CheckReport report =
      check(written({"F0 SA0 F1 SA1 RG0 RG1", "RA0 RA1 F0 SA0 F1 SA1 RG0 RG1 B0 SG0 B1 SG1 step@1",
                     "RA0 F0 B0 SG0 RA1 F1 B1 SG1 step@1"},
                    2));
  ASSERT_EQ(report.cycle.size(), 2U);
  EXPECT_EQ(to_text(report.cycle[0]), "stage 1, action 5: SA1 waits until stage 2 posts RA1");
  EXPECT_EQ(to_text(report.cycle[1]), "stage 2, action 3: SG0 waits until stage 1 posts RG0");
}

// Plays a schedule with blocking sends, stages in random order, and matches messages by counting alone. Finds
// deadlocks without any code of the checker, which the tests compare with it.
class Play {
 public:
  Play(const Schedule& schedule, std::mt19937& random) : schedule_(schedule), random_(random) {}

  bool finishes() {
    std::vector<int> order(static_cast<std::size_t>(schedule_.stages));
    std::iota(order.begin(), order.end(), 0);
    for (bool moved = true; moved;) {
      moved = false;
      std::shuffle(order.begin(), order.end(), random_);
      for (const int stage : order) moved = step(stage) || moved;
    }
    return std::all_of(order.begin(), order.end(),
                       [&](int stage) { return next_[stage] == list(stage).size(); });
  }

 private:
  const std::vector<Action>& list(int stage) const {
    return schedule_.actions[static_cast<std::size_t>(stage)];
  }

  bool step(int stage) {
    std::size_t& next = next_[stage];
    if (next == list(stage).size()) return false;
    const Action& action = list(stage)[next];
    const std::pair<int, int> out{stage, is_send(action.kind) ? peer_of(schedule_, action) : -1};
    if (is_send(action.kind) && posted_[out] <= sent_[out]) return false;
    if (is_compute(action.kind) && !has_arrived(action)) return false;
    if (is_send(action.kind)) ++sent_[out];
    if (is_receive(action.kind)) ++posted_[{peer_of(schedule_, action), stage}];
    ++next;
    return true;
  }

  // Receives of a stage from one peer are numbered from 0; receive k has arrived when the peer has sent k + 1
  // times.
  bool has_arrived(const Action& action) {
    Message message;
    if (!needs_message(schedule_, action, message)) return true;
    std::map<int, int> from;
    for (const Action& a : list(action.stage)) {
      if (!is_receive(a.kind)) continue;
      const int peer = peer_of(schedule_, a);
      if (message_of(schedule_, a) == message) return sent_[{peer, action.stage}] > from[peer];
      ++from[peer];
    }
    return false;
  }

  const Schedule& schedule_;
  std::mt19937& random_;
  std::map<int, std::size_t> next_;
  std::map<std::pair<int, int>, int> sent_, posted_;
};

TEST(Check, FindsADeadlockWhereverAPlayGetsStuck) {
  std::mt19937 random(5);
  int stuck = 0, free = 0;
  for (int repeat = 0; repeat < 2000; ++repeat) {
    const bool chunked = repeat % 2 == 1;
    Schedule s = generate({.family = chunked ? Family::interleaved : Family::one_f_one_b,
                           .stages = 2 + repeat % 3,
                           .microbatches = 3,
                           .chunks = chunked ? 2 : 1});
    // Receives move towards the action that needs them, past actions that receive nothing.
    for (unsigned moves = 1 + random() % 60; moves > 0; --moves) {
      std::vector<Action>& list = s.actions[random() % s.actions.size()];
      const std::size_t at = random() % (list.size() - 1);
      Message message;
      const bool needed = is_compute(list[at + 1].kind) && needs_message(s, list[at + 1], message) &&
                          is_receive(list[at].kind) && message == message_of(s, list[at]);
      if (is_receive(list[at].kind) && !is_receive(list[at + 1].kind) && !needed)
        std::swap(list[at], list[at + 1]);
    }
    const CheckReport report = check(s);
    const auto about = [&](Rule rule) {
      return std::any_of(report.violations.begin(), report.violations.end(),
                         [&](const Violation& v) { return v.rule == rule; });
    };
    if (about(Rule::message)) continue;
    const bool finishes = Play(s, random).finishes();
    ++(finishes ? free : stuck);
    EXPECT_EQ(about(Rule::deadlock), !finishes) << to_text(s.actions[0]) << "\n" << to_text(s.actions[1]);
  }
  EXPECT_GT(stuck, 100);
  EXPECT_GT(free, 100);
}

TEST(Check, ADeadlockIsNotLookedForWhereMessagesDoNotMeet) {
  const CheckReport report = check(written({"F0 B0 step@1", "F0 B0 step@1"}, 1));
  EXPECT_TRUE(report.cycle.empty());
  EXPECT_EQ(report.violations.size(), 4U);
}

TEST(Check, Steps) {
  expect_said(
      {{{"F0 B0"}, 1, "step: stage 0, action 2: the last 1 gradients are never applied\n"},
       {{"F0 B0 step@2"}, 1, "step: stage 0, action 2: step@2 follows version 0: steps count by one\n"},
       {{"F0 B0 step@1 step@2"}, 1, "step: stage 0, action 3: step@2 applies 0 gradients, on stage 0 0\n"},
       {{"F0 I0 step@1 W0 step@2"},
        1,
        "step: stage 0, action 2: step@1 comes between the two halves of a backward\n"
        "step: stage 0, action 2: step@1 applies 0 gradients, on stage 0 0\n"
        "version: stage 0, action 3: W0 reads a version that is not there (the newest is 1)\n"
        "version: stage 0, action 3: W0 reads not the newest weights, which are version 1\n",
        1,
        VersionRule::none},
       {{kLower, "RA0 RA1 F0 B0 SG0 step@1 F1@1 B1@1 SG1 step@2"},
        2,
        "step: stage 1, action 5: step@1 applies 1 gradients, on stage 0 2\n"
        "step: stage 1, action 10: there are 2 steps, on stage 0 1\n",
        1,
        VersionRule::stash}});
}

TEST(Check, VersionsMustBeThere) {
  expect_said(
      {{{"F0@1 B0@1 step@1"},
        1,
        "version: stage 0, action 0: F0@1 reads a version that is not there (the newest is 0)\n"
        "version: stage 0, action 1: B0@1 reads a version that is not there (the newest is 0)\n"},
       {{"F0 stash@1 B0 step@1"},
        1,
        "version: stage 0, action 1: stash@1 copies a version that is not the newest\n"
        "version: stage 0, action 4: version 1 is stashed and never dropped\n"},
       {{"F0 stash@0 stash@0 drop@0 B0 step@1"}, 1, "version: stage 0, action 2: stash@0 happens twice\n"},
       {{"F0 B0 drop@0 step@1"}, 1, "version: stage 0, action 2: drop@0 drops what was not stashed\n"}});
}

TEST(Check, VersionOfBackward) {
  const std::string lower = "F0 SA0 F1 SA1 RG0 RG1 B0 stash@0 step@1 B1 drop@0 step@2",
                    upper = "RA0 RA1 F0 B0 SG0 step@1 F1@1 ";
  expect_said({{{lower, upper + "B1@1 SG1 step@2"}, 2, "", 1, VersionRule::stash},
               {{lower, upper + "B1 SG1 step@2"},
                2,
                "version: stage 1, action 7: B1 reads a version that is not there (the newest is 1)\n"
                "version: stage 1, action 7: B1 reads another version than its forward, which read 1\n",
                1,
                VersionRule::stash}});
}

// The two chunks' forwards of microbatch 1 read different weight versions; each chunk's backward must read
// the version of its own forward.
TEST(Check, VersionOfBackwardIsThatOfItsOwnChunk) {
  expect_said({{{"F0 F1 F0/1 B0/1 B0 stash@0 step@1 F1/1@1 B1/1@1 B1 drop@0 step@2"},
                2,
                "alive: stage 0, action 6: 2 versions are alive, 1 are allowed\n",
                2,
                VersionRule::stash}});
}

// The planted fault "newest version in backward" reads a version that exists and is the wrong one.
TEST(Check, NewestVersionInBackwardIsNoGradient) {
  Schedule s = generate({.family = Family::pipedream, .stages = 2, .microbatches = 4});
  for (Action& a : s.actions[0])
    if (a.kind == Kind::backward) a.version = a.microbatch;
  EXPECT_EQ(violations(check(s)),
            "version: stage 0, action 11: B1@1 reads another version than its forward, which read 0\n"
            "version: stage 0, action 19: B2@2 reads another version than its forward, which read 1\n"
            "version: stage 0, action 23: B3@3 reads another version than its forward, which read 2\n");
  // Under VersionRule::none the newest versions are right, so the checker objects only to the copies kept.
  s.versions = VersionRule::none;
  EXPECT_EQ(violations(check(s)),
            "alive: stage 0, action 7: 2 versions are alive, 1 are allowed\n"
            "alive: stage 0, action 14: 2 versions are alive, 1 are allowed\n"
            "alive: stage 0, action 22: 2 versions are alive, 1 are allowed\n");
}

TEST(Check, NoneReadsTheNewest) {
  expect_said({{{"F0 F1 B0 step@1 B1@1 step@2"}, 2, "", 1, VersionRule::none},
               {{"F0 F1 B0 stash@0 step@1 B1 drop@0 step@2"},
                2,
                "alive: stage 0, action 4: 2 versions are alive, 1 are allowed\n"
                "version: stage 0, action 5: B1 reads not the newest weights, which are version 1\n",
                1,
                VersionRule::none},
               {{"F0 B0 stash@0 step@1 F1 B1 drop@0 step@2"},
                2,
                "alive: stage 0, action 3: 2 versions are alive, 1 are allowed\n"
                "version: stage 0, action 4: F1 reads not the newest weights, which are version 1\n",
                1,
                VersionRule::stash}});
}

TEST(Check, VerticalSyncReadsOneVersionOnAllStages) {
  Schedule s = generate({.family = Family::pipedream, .stages = 2, .microbatches = 4});
  s.versions = VersionRule::vertical_sync;
  EXPECT_EQ(violations(check(s)),
            "version: stage 1, action 6: F1@1 reads another version than stage 0, which read 0\n"
            "version: stage 1, action 11: F2@2 reads another version than stage 0, which read 1\n"
            "version: stage 1, action 16: F3@3 reads another version than stage 0, which read 2\n");
}

TEST(Check, AliveVersions) {
  Schedule s = generate(
      {.family = Family::pipedream, .stages = 3, .microbatches = 6, .versions = VersionRule::vertical_sync});
  EXPECT_TRUE(check(s).ok());
  s.versions = VersionRule::two_buffers;
  EXPECT_NE(violations(check(s)).find("alive: stage 0, action "), std::string::npos);
  EXPECT_NE(violations(check(s)).find("3 versions are alive, 2 are allowed"), std::string::npos);
}

// A schedule with at most two versions, the same on all stages, is still not 2BW if it reads the newest
// weights instead of the version before.
TEST(Check, TwoBuffersReadTheVersionBeforeTheNewest) {
  Schedule s = generate({.family = Family::one_f_one_b, .stages = 2, .microbatches = 2, .batches = 2});
  EXPECT_TRUE(check(s).ok());
  s.versions = VersionRule::two_buffers;
  EXPECT_EQ(
      violations(check(s)).find("version: stage 0, action 15: B2@1 reads not the version before the newest, "
                                "which is 0\n"),
      0U)
      << violations(check(s));
}

// The planted fault "stash dropped early" must be refused: a dropped version cannot be read.
TEST(Check, ADroppedVersionCannotBeRead) {
  Schedule s = generate({.family = Family::pipedream, .stages = 2, .microbatches = 4});
  std::vector<Action>& list = s.actions[0];
  const auto drop = std::find(list.begin(), list.end(), parse_action("drop@0", 0, ""));
  const auto read = std::find(list.begin(), list.end(), parse_action("B1", 0, ""));
  ASSERT_LT(read, drop);
  std::rotate(read, drop, drop + 1);
  EXPECT_EQ(violations(check(s)),
            "version: stage 0, action 12: B1 reads a version that is not there (the newest is 1)\n");
}

TEST(Check, ListsTwentyAndCountsTheRest) {
  const CheckReport report = check(written({""}, 25));
  EXPECT_EQ(report.violations.size(), kMostViolations);
  EXPECT_EQ(report.more, 5);
  EXPECT_FALSE(report.ok());
}

TEST(Count, WhatAStageHolds) {
  const std::vector<StageCounts> counts =
      count(generate({.family = Family::pipedream, .stages = 3, .microbatches = 9}));
  EXPECT_EQ(counts[0], (StageCounts{3, 3, 2, 9, 9}));
  EXPECT_EQ(counts[1], (StageCounts{2, 2, 3, 18, 9}));
  EXPECT_EQ(counts[2], (StageCounts{1, 1, 2, 9, 9}));
  const std::vector<StageCounts> split =
      count(generate({.family = Family::zb_h1, .stages = 3, .microbatches = 9}));
  EXPECT_EQ(split[2].activations, 3);
  EXPECT_EQ(split[2].versions, 1);
}

TEST(Check, RefusesNumbersOutOfRange) {
  Schedule s = written({"F0 B0 step@1"}, 1);
  s.microbatches = 0;
  EXPECT_EQ(test::error_of([&] { check(s); }), "microbatches: 0 is out of range | choose 1 to 1048576");
}

}  // namespace
}  // namespace sc::pipedream
