#include "pipedream/schedule.h"

#include <optional>
#include <tuple>

#include "pipedream/messages.h"
#include "tests/pipedream/support.h"

namespace sc::pipedream {
namespace {

using test::error_of, test::expect_texts, test::written;

TEST(ActionText, IsShortAndReadsBack) {
  const std::vector<std::pair<std::string, Action>> examples = {
      {"F0", {0, Kind::forward, 0, 0, 0}},
      {"B3/1@2", {0, Kind::backward, 3, 1, 2}},
      {"I12", {0, Kind::backward_input, 12, 0, 0}},
      {"W7@1", {0, Kind::backward_weights, 7, 0, 1}},
      {"SA0", {0, Kind::send_activation, 0, 0, 0}},
      {"RA1/2", {0, Kind::receive_activation, 1, 2, 0}},
      {"SG5", {0, Kind::send_gradient, 5, 0, 0}},
      {"RG1048575", {0, Kind::receive_gradient, 1048575, 0, 0}},
      {"step@1", {0, Kind::step, kNoMicrobatch, 0, 1}},
      {"stash@0", {0, Kind::stash, kNoMicrobatch, 0, 0}},
      {"drop@3", {0, Kind::drop, kNoMicrobatch, 0, 3}},
  };
  for (const auto& [text, action] : examples) {
    EXPECT_EQ(to_text(action), text);
    EXPECT_EQ(parse_action(text, 0, "here"), action) << text;
  }
  EXPECT_EQ(to_text(std::vector<Action>{{0, Kind::forward, 0, 0, 0}, {0, Kind::backward, 0, 0, 0}}), "F0 B0");
}

TEST(ActionText, RefusesEverythingElse) {
  for (const char* text : {"", "F", "X0", "F-1", "F0/", "F0@", "F0 ", "f0", "F0/1/2", "SA0@1", "step0",
                           "step@", "F12345678", "F0@12345678", "stash@-1", "F+1", "F0x"})
    EXPECT_NE(error_of([&] { parse_action(text, 0, "here"); }).find("is no action"), std::string::npos)
        << text;
  EXPECT_EQ(
      error_of([&] { parse_action("Q9", 0, "a.json, stage 0"); }),
      "a.json, stage 0: 'Q9' is no action | write for example F0, B3/1@2, SA0, RG0, step@1, stash@0, drop@0");
}

// Parsing an action stops at the end of its string_view, even where more digits follow in memory.
TEST(ActionText, EndsWithItsView) {
  const std::string_view text = "F123456@789";
  EXPECT_EQ(parse_action(text.substr(0, 3), 0, "here"), (Action{0, Kind::forward, 12, 0, 0}));
  EXPECT_EQ(parse_action(text.substr(0, 9), 0, "here"), (Action{0, Kind::forward, 123456, 0, 7}));
}

TEST(Names, AreDistinctAndReadBack) {
  for (int i = 0; i < kKinds; ++i) {
    Kind kind = Kind::forward;
    ASSERT_TRUE(kind_from_name(name_of(static_cast<Kind>(i)), kind));
    EXPECT_EQ(kind, static_cast<Kind>(i));
  }
  for (const VersionRule rule : {VersionRule::flush, VersionRule::none, VersionRule::stash,
                                 VersionRule::vertical_sync, VersionRule::two_buffers}) {
    VersionRule back = VersionRule::flush;
    ASSERT_TRUE(rule_from_name(name_of(rule), back));
    EXPECT_EQ(back, rule);
  }
  for (const Family family : kFamilies) {
    Family back = Family::naive;
    ASSERT_TRUE(family_from_name(name_of(family), back));
    EXPECT_EQ(back, family);
  }
  Kind kind = Kind::forward;
  VersionRule rule = VersionRule::flush;
  Family family = Family::naive;
  EXPECT_FALSE(kind_from_name("forwards", kind) || rule_from_name("", rule) ||
               family_from_name("GPipe", family));
}

TEST(Messages, KnowTheirEnds) {
  Schedule s;
  s.stages = 3;
  s.chunks = 2;
  s.microbatches = 4;
  const Action up{2, Kind::send_activation, 1, 0,
                  0};  // from position 2 to position 3, which is stage 0's chunk 1
  EXPECT_EQ(peer_of(s, up), 0);
  EXPECT_EQ(message_of(s, up), (Message{false, 3, 1}));
  EXPECT_EQ(receive_of(s, up), (Action{0, Kind::receive_activation, 1, 1, 0}));
  EXPECT_EQ(peer_of(s, receive_of(s, up)), 2);
  const Action down{0, Kind::send_gradient, 1, 1, 0};  // from position 3 to position 2
  EXPECT_EQ(peer_of(s, down), 2);
  EXPECT_EQ(receive_of(s, down), (Action{2, Kind::receive_gradient, 1, 0, 0}));
  EXPECT_EQ(peer_of(s, receive_of(s, down)), 0);
  EXPECT_EQ(message_of(s, down), message_of(s, receive_of(s, down)));
}

TEST(Messages, HaveDistinctSlots) {
  Schedule s;
  s.stages = 2;
  s.chunks = 3;
  s.microbatches = 5;
  std::vector<int> used(message_slots(s), 0);
  for (const bool gradient : {false, true})
    for (int to = 0; to < s.positions(); ++to)
      for (int m = 0; m < s.microbatches; ++m) ++used.at(message_slot(s, {gradient, to, m}));
  EXPECT_EQ(used, std::vector<int>(60, 1));
}

TEST(Messages, AreNeededBetweenStagesOnly) {
  Schedule s;
  s.stages = 2;
  s.chunks = 2;
  for (const auto& [action, needed, made] :
       std::vector<std::tuple<Action, std::optional<Message>, std::optional<Action>>>{
           {{0, Kind::forward, 0, 0, 0}, {}, Action{0, Kind::send_activation, 0, 0, 0}},  // reads tokens
           {{0, Kind::forward, 0, 1, 0}, Message{false, 2, 0}, Action{0, Kind::send_activation, 0, 1, 0}},
           {{1, Kind::forward, 0, 0, 0}, Message{false, 1, 0}, Action{1, Kind::send_activation, 0, 0, 0}},
           {{1, Kind::forward, 0, 1, 0}, Message{false, 3, 0}, {}},
           {{1, Kind::backward, 0, 1, 0}, {}, Action{1, Kind::send_gradient, 0, 1, 0}},  // from the loss
           {{0, Kind::backward, 0, 0, 0}, Message{true, 0, 0}, {}},
           {{1, Kind::backward_input, 0, 0, 0}, Message{true, 1, 0}, Action{1, Kind::send_gradient, 0, 0, 0}},
           {{0, Kind::backward_input, 0, 1, 0}, Message{true, 2, 0}, Action{0, Kind::send_gradient, 0, 1, 0}},
           {{1, Kind::backward_weights, 0, 0, 0}, {}, {}},
           {{0, Kind::backward_weights, 0, 1, 0}, {}, {}}}) {
    Message message;
    Action send;
    ASSERT_EQ(needs_message(s, action, message), needed.has_value()) << to_text(action);
    ASSERT_EQ(makes_message(s, action, send), made.has_value()) << to_text(action);
    EXPECT_EQ(message, needed.value_or(message)) << to_text(action);
    EXPECT_EQ(send, made.value_or(send)) << to_text(action);
  }
  s.stages = 1;
  Message message;
  Action send;
  EXPECT_FALSE(needs_message(s, {0, Kind::forward, 0, 1, 0}, message) ||
               makes_message(s, {0, Kind::forward, 0, 0, 0}, send));
}

TEST(PlaceMessages, PostsReceivesOneActionAhead) {
  const Schedule s = generate({.family = Family::one_f_one_b, .stages = 3, .microbatches = 3});
  expect_texts(
      {{to_text(s.actions[0]), "F0 SA0 F1 SA1 RG0 F2 SA2 RG1 B0 RG2 B1 B2 step@1"},
       {to_text(s.actions[1]), "RA0 RA1 F0 SA0 RA2 RG0 F1 SA1 B0 SG0 RG1 F2 SA2 RG2 B1 SG1 B2 SG2 step@1"},
       {to_text(s.actions[2]), "RA0 RA1 F0 B0 SG0 F1 RA2 B1 SG1 F2 B2 SG2 step@1"}});
}

TEST(PlaceMessages, IsIndependentOfMessagesAlreadyThere) {
  const Schedule s = generate({.family = Family::interleaved, .stages = 3, .microbatches = 6, .chunks = 2});
  EXPECT_EQ(with_messages(without_messages(s)), s);
  EXPECT_EQ(with_messages(s), s);
  for (const std::vector<Action>& list : without_messages(s).actions)
    for (const Action& action : list) EXPECT_FALSE(is_message(action.kind));
}

// Stage 0 makes microbatch 0 first, and stage 1 wants microbatch 1 first. Both ends of a pair must agree on
// one order, so the receive of microbatch 0 moves before the receive of microbatch 1.
TEST(PlaceMessages, KeepsTheOrderOfAPairWhereStagesDisagree) {
  const Schedule s = with_messages(written({"F0 F1 B0 B1 step@1", "F1 B1 F0 B0 step@1"}, 2));
  EXPECT_EQ(to_text(s.actions[1]), "RA0 RA1 F1 B1 SG1 F0 B0 SG0 step@1");
  EXPECT_EQ(to_text(s.actions[0]), "F0 SA0 RG1 RG0 F1 SA1 B0 B1 step@1");
  EXPECT_TRUE(check(s).cycle.empty());
}

TEST(PlaceMessages, RefusesAnImpossibleOrder) {
  const auto place = [](const std::vector<std::string>& lists) {
    return error_of([&] { with_messages(written(lists, 2)); });
  };
  expect_texts({{place({"F0 B0 F1 B1", "F1 B1 F0 B0"}),
                 "stage 0, action 1: B0 waits for a value that is never made | order the compute actions so "
                 "that each comes after what it needs"},
                // The error names the first stage that cannot go on; in the first case stage 0 has finished.
                {place({"F0", "F0 B0", "F0"}), "stage 1, action 1: B0 waits for a value..."},
                {place({"F0", "F0 F1"}), "stage 1, action 1: F1 waits for a value..."}});
  EXPECT_NE(place({"F0 F1", "F0 F1 B0 B1 F2"}).find("F2 lies outside"), std::string::npos);
}

TEST(Shape, NamesWhatIsOutOfRange) {
  const auto refuse = [](int stage, std::size_t at, const Action& action) {
    Schedule s = generate({.stages = 2, .microbatches = 2});
    s.actions[static_cast<std::size_t>(stage)][at] = action;
    return error_of([&] { require_shape(s); });
  };
  for (const auto& [stages, microbatches, chunks, said] : std::vector<std::tuple<int, int, int, std::string>>{
           {2, 2, 1, "nothing thrown"},
           {0, 2, 1, "stages: 0 is out of range | choose 1 to 1024"},
           {2, 1 << 21, 1, "microbatches: 2097152 is out of range | choose 1 to 1048576"},
           {2, 2, 65, "chunks: 65 is out of range | choose 1 to 64"},
           {2, 1 << 20, 64,
            "stages x chunks x microbatches: 134217728 is out of range | choose 1 to 4194304"},
           {3, 2, 1, "actions: there are 2 lists for 3 stages | write one list a stage"}}) {
    Schedule s = generate({.stages = 2, .microbatches = 2});
    s.stages = stages, s.microbatches = microbatches, s.chunks = chunks;
    EXPECT_EQ(error_of([&] { require_shape(s); }), said);
  }
  const std::vector<Action> bad = {
      {0, Kind::forward, 0, 0, 0},              // in the list of stage 1
      {1, Kind::forward, 2, 0, 0},              // microbatch
      {1, Kind::forward, -1, 0, 0},             // a compute action has one
      {1, Kind::step, 0, 0, 1},                 // a step has none
      {1, Kind::forward, 0, 1, 0},              // chunk
      {1, Kind::forward, 0, -1, 0},             //
      {1, Kind::forward, 0, 0, -1},             // version
      {1, Kind::forward, 0, 0, (1 << 20) + 1},  //
      {1, Kind::send_gradient, 0, 0, 1},        // a message has none
      {1, Kind::send_activation, 0, 0, 0},      // the last position sends no activation
      {1, Kind::receive_gradient, 0, 0, 0},     // and receives no gradient
  };
  for (const Action& action : bad)
    EXPECT_EQ(refuse(1, 3, action)
                  .find("stage 1, action 3: " + to_text(action) +
                        " lies outside 2 stages, 2 microbatches, 1 chunks"),
              0U)
        << refuse(1, 3, action);
  EXPECT_EQ(refuse(1, 3, {1, Kind::forward, 0, 0, 1 << 20}), "nothing thrown");
  for (const Kind kind : {Kind::receive_activation, Kind::send_gradient})
    EXPECT_NE(refuse(0, 0, {0, kind, 0, 0, 0}), "nothing thrown");
}

TEST(Shape, ASingleStageHasNobodyToSendTo) {
  for (const char* action : {"SA0", "SG0/1", "RA0/1", "RG0"}) {
    const Schedule s = written({std::string("F0 F0/1 ") + action + " B0/1 B0 step@1"}, 1, 2);
    EXPECT_NE(error_of([&] { require_shape(s); }).find("its message has no other end"), std::string::npos)
        << action;
  }
}

TEST(Windows, EndBehindEveryStep) {
  const Schedule s = generate({.family = Family::pipedream, .stages = 2, .microbatches = 3});
  const auto windows = split_at_steps(s.actions[0]);
  ASSERT_EQ(windows.size(), 3U);
  EXPECT_EQ(to_text(windows[0]), "F0 SA0 RG0 F1 SA1 B0 stash@0 step@1");
  EXPECT_EQ(windows[1].back().version, 2);
  std::vector<Action> joined;
  for (const auto& window : windows) joined.insert(joined.end(), window.begin(), window.end());
  EXPECT_EQ(joined, s.actions[0]);
  EXPECT_EQ(to_text(split_at_steps(written({"F0 B0 step@1 drop@0"}, 1).actions[0])[0]),
            "F0 B0 step@1 drop@0");
  EXPECT_EQ(split_at_steps({}).size(), 1U);
}

}  // namespace
}  // namespace sc::pipedream
