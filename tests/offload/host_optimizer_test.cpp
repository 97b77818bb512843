// Tests the host optimizer by itself: which piece is updated when, and what waits for it.
#include "common/offload/host_optimizer.h"

#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <thread>

#include "common/base/check.h"
#include "common/offload/update_clock.h"
#include "tests/support/answers.h"

namespace sc {
namespace {

using namespace std::chrono_literals;

/// An operation that ends when the test says so.
class Gate {
 public:
  void open() { open_ = true; }
  [[nodiscard]] OpEnd end() {
    return {[this] { return open_.load(); },
            [this] {
              while (!open_) std::this_thread::sleep_for(100us);
            }};
  }

 private:
  std::atomic<bool> open_ = false;
};

at::Tensor one_element(float value) { return at::full({1}, value, at::kFloat); }

/// An optimizer of two pieces of one element, 1, with gradient 1: an update at lr 0.5 takes half away.
class HostOptimizerOfTwo : public ::testing::Test {
 protected:
  HostOptimizerOfTwo() {
    for (std::size_t i = 0; i < 2; ++i) lands(i, landed_[i].end());
  }
  void lands(std::size_t piece, OpEnd end) { optimizer_.lands(piece, 0, one_element(1), std::move(end)); }
  void post(std::int64_t after_sends = 0) {
    optimizer_.post({.after_sends = after_sends});
    optimizer_.norm_known(0, {scalars_landed_.end(), scalars_.data()});
  }
  // After a failure the update may still wait for a gate, so all are opened.
  void TearDown() override {
    for (Gate* gate : {&landed_[0], &landed_[1], &scalars_landed_, &arrived_}) gate->open();
  }
  float parameter(std::size_t piece) {
    return states_.states(static_cast<Number>(piece)).master.item<float>();
  }
  static PieceStates ones() { return {one_element(1), one_element(0), one_element(0)}; }
  // Checks that a piece has not been updated. A thread that begins too early is noticed if it is prompt.
  void expect_untouched(std::size_t piece) {
    std::this_thread::sleep_for(5ms);
    EXPECT_FALSE(optimizer_.updated(static_cast<int>(piece), 1));
    EXPECT_EQ(parameter(piece), 1);
  }

  std::array<Gate, 2> landed_;
  Gate scalars_landed_, arrived_;
  std::array<double, 4> scalars_ = {0.5, 1, 1, 0};  // lr, step, clip
  StatesInMemory states_{{{ones()}, {ones()}}};
  ParamsInMemory params_{{at::Tensor(), at::Tensor()}};
  HostOptimizer optimizer_{
      {{.unit = 0, .range = {0, 1}, .decay = {}}, {.unit = 1, .range = {0, 1}, .decay = {}}},
      {.weight_decay = 0},
      1,
      states_,
      params_};
};

TEST_F(HostOptimizerOfTwo, WhatNeedsTheNormWaitsForIt) {
  for (Gate& gate : landed_) gate.open();
  optimizer_.post({});
  expect_untouched(0);
  optimizer_.norm_known(0, {{}, scalars_.data()});
  optimizer_.wait(0, 1);
  EXPECT_NEAR(parameter(0), 0.5, 1e-6);
}

TEST_F(HostOptimizerOfTwo, APieceIsUpdatedWhenItHasLanded) {
  landed_[1].open();
  post();
  expect_untouched(1);  // without its learning rate
  scalars_landed_.open();
  optimizer_.wait(1, 1);
  EXPECT_TRUE(optimizer_.updated(1, 1));
  EXPECT_FALSE(optimizer_.updated(1, 2));
  EXPECT_NEAR(parameter(1), 0.5, 1e-6);
  expect_untouched(0);
  landed_[0].open();
  optimizer_.wait(0, 1);
  EXPECT_NEAR(parameter(0), 0.5, 1e-6);
}

TEST_F(HostOptimizerOfTwo, WhatIsToBeSentFirstIsNotOverwritten) {
  for (Gate& gate : landed_) gate.open();
  scalars_landed_.open();
  post(1);
  expect_untouched(0);
  optimizer_.sent(0, arrived_.end());
  expect_untouched(0);  // on its way
  arrived_.open();
  optimizer_.wait(0, 1);
  expect_untouched(1);
  optimizer_.release();  // nothing more is sent
  optimizer_.wait(1, 1);
  EXPECT_NEAR(parameter(1), 0.5, 1e-6);
}

TEST_F(HostOptimizerOfTwo, AnUpdateThatIsSkippedChangesNothing) {
  for (Gate& gate : landed_) gate.open();
  scalars_landed_.open();
  scalars_[2] = kNoUpdate;
  post();
  optimizer_.wait(0, 1);
  EXPECT_TRUE(optimizer_.updated(0, 1));
  EXPECT_EQ(parameter(0), 1);
}

// Updates by a guess: pieces are written to the other half, and nobody learns of it before the norm.
class HostOptimizerThatGuesses : public HostOptimizerOfTwo {
 protected:
  HostOptimizerThatGuesses() {
    states_ = StatesInMemory({{ones(), ones()}, {ones(), ones()}});
    scalars_landed_.open();
    optimizer_.post({.norm = NormIs::guessed, .scalars = {scalars_landed_.end(), scalars_.data()}});
  }
  // Waits until that many pieces have begun.
  void until_begun(std::int64_t pieces) {
    while (optimizer_.counts().before_norm < pieces) std::this_thread::sleep_for(100us);
  }
  void expect_counts(std::int64_t updated, std::int64_t before_norm, std::int64_t again) {
    const UpdateCounts counts = optimizer_.counts();
    EXPECT_EQ(counts.updated, updated);
    EXPECT_EQ(counts.before_norm, before_norm);
    EXPECT_EQ(counts.again, again);
  }
  void norm_known() { optimizer_.norm_known(0, {norm_.end(), truth_.data()}); }

  Gate norm_;
  std::array<double, 3> truth_ = {0.5, 1, 1};
};

TEST_F(HostOptimizerThatGuesses, WhatWasMadeCountsOnceTheNormSaysSo) {
  landed_[1].open();
  until_begun(1);
  expect_untouched(1);
  norm_known();
  expect_untouched(1);  // it has not landed
  norm_.open();
  optimizer_.wait(1, 1);
  EXPECT_NEAR(parameter(1), 0.5, 1e-6);
  landed_[0].open();
  optimizer_.wait(0, 1);
  EXPECT_NEAR(parameter(0), 0.5, 1e-6);
  expect_counts(2, 1, 0);
}

TEST_F(HostOptimizerThatGuesses, AWrongGuessIsMadeAgainFromWhatWas) {
  for (Gate& gate : landed_) gate.open();
  until_begun(2);
  truth_[0] = 0.25;
  norm_.open();
  norm_known();
  for (const std::size_t piece : {0U, 1U}) {
    optimizer_.wait(piece, 1);
    EXPECT_NEAR(parameter(piece), 0.75, 1e-6);
  }
  expect_counts(2, 2, 2);
}

// After one clipped step the next may clip too: nothing begins before the norm until the norm has confirmed a
// guess.
TEST_F(HostOptimizerThatGuesses, AfterAWrongGuessTheNormIsWaitedForOnce) {
  for (Gate& gate : landed_) gate.open();
  until_begun(2);
  truth_[2] = 0.5;
  norm_.open();
  norm_known();
  for (const std::int64_t update : {1, 2}) {
    for (const std::size_t piece : {0U, 1U}) optimizer_.wait(piece, update);
    for (const std::size_t piece : {0U, 1U}) optimizer_.lands(piece, update, one_element(1), {});
    optimizer_.post({.norm = NormIs::guessed, .scalars = {{}, scalars_.data()}});
    update == 1 ? std::this_thread::sleep_for(5ms) : until_begun(4);
    expect_counts(2 * update, update == 1 ? 2 : 4, 2);
    optimizer_.norm_known(update, {{}, scalars_.data()});
  }
  for (const std::size_t piece : {0U, 1U}) optimizer_.wait(piece, 3);
  expect_counts(6, 4, 2);
}

// While a piece is worked on, the one that lands last is taken next if forward needs it first.
TEST(HostOptimizer, WhatForwardNeedsFirstIsTakenFirst) {
  constexpr std::int64_t kLong = 1 << 24;
  const auto states = [](std::int64_t n) {
    return PieceStates{at::full({n}, 1, at::kFloat), at::full({n}, 0, at::kFloat),
                       at::full({n}, 0, at::kFloat)};
  };
  constexpr std::int64_t kSizes[] = {1, kLong, kLong, kLong, kLong};
  std::vector<StatesInMemory::Of> of;
  std::vector<Piece> pieces;
  for (const std::int64_t n : kSizes) {
    pieces.push_back({.unit = static_cast<int>(pieces.size()), .range = {0, n}, .decay = {}});
    of.push_back({states(n)});
  }
  StatesInMemory store(std::move(of));
  ParamsInMemory params(std::vector<at::Tensor>(5));
  HostOptimizer optimizer(std::move(pieces), {.weight_decay = 0}, 1, store, params);
  const std::array<double, 3> scalars = {0.5, 1, 1};
  for (const std::size_t piece : {4U, 3U, 2U, 1U})
    optimizer.lands(piece, 0, at::full({kLong}, 1, at::kFloat), {});
  optimizer.post({.norm = NormIs::not_needed, .scalars = {{}, scalars.data()}});
  while (optimizer.counts().before_norm == 0) std::this_thread::sleep_for(100us);
  optimizer.lands(0, 0, one_element(1), {});
  optimizer.wait(0, 1);
  std::int64_t done = 0;
  for (const int unit : {1, 2, 3, 4}) done += optimizer.updated(unit, 1) ? 1 : 0;
  EXPECT_LE(done, 2) << "it came behind all that had landed before";
  for (const std::size_t piece : {1U, 2U, 3U, 4U}) optimizer.wait(piece, 1);
}

TEST_F(HostOptimizerThatGuesses, AStepThatIsSkippedLeavesWhatWas) {
  for (Gate& gate : landed_) gate.open();
  until_begun(2);
  truth_[1] = 0, truth_[2] = kNoUpdate;
  norm_.open();
  norm_known();
  for (const std::size_t piece : {0U, 1U}) {
    optimizer_.wait(piece, 1);
    EXPECT_EQ(parameter(piece), 1);
  }
  // The next update goes on from these results.
  for (const std::size_t piece : {0U, 1U}) optimizer_.lands(piece, 1, one_element(1), {});
  optimizer_.post({});
  optimizer_.norm_known(1, {{}, scalars_.data()});
  for (const std::size_t piece : {0U, 1U}) {
    optimizer_.wait(piece, 2);
    EXPECT_NEAR(parameter(piece), 0.5, 1e-6);
  }
}

TEST_F(HostOptimizerOfTwo, WhoWaitsIsToldWhatFailed) {
  landed_[1].open();
  scalars_landed_.open();
  lands(0, {[] { return true; }, [] { throw DeviceError("the copy failed"); }});
  post();
  EXPECT_THROW(optimizer_.wait(0, 1), DeviceError);
  EXPECT_THROW(optimizer_.wait(1, 2), DeviceError);
  EXPECT_FALSE(optimizer_.updated(0, 0));
}

TEST(UpdateClockTest, AnUpdateBelongsToTheStepWhoseForwardWaitsForIt) {
  const UpdateClock begun{.delayed = true, .warm_steps = 2};
  test::expect_counts({
      {begun.step_after(begun.posted(0)), 1},
      {begun.last_posted(0), 0},
      {begun.last_posted(3), 2},
      {begun.due(1), 1},  // exact
      {begun.due(3), 2}   // one behind
  });
  EXPECT_FALSE(begun.pending(1));
  EXPECT_FALSE((UpdateClock{.delayed = true}.pending(0)));
  EXPECT_TRUE(begun.pending(3));
  // The clock of a run resumed before step 5 with the update by step 4's gradient, which had been delayed.
  const UpdateClock resumed{.delayed = true, .warm_steps = 2, .first_step = 5, .taken_over = 1};
  test::expect_counts(
      {{resumed.step_after(0), 5}, {resumed.step_after(resumed.posted(5)), 6}, {resumed.due(5), 0}});
  EXPECT_TRUE(resumed.pending(5));
}

}  // namespace
}  // namespace sc
