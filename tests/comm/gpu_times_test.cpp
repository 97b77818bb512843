// Tests waits that a GPU measures, as the record takes them over. The fake GPU passes its moments when the
// test says so.
#include <gtest/gtest.h>

#include "common/watch/comm_record.h"
#include "common/watch/gpu_moment.h"

namespace sc {
namespace {

using namespace std::chrono_literals;
using Clock = CommRecord::Clock;

/// A moment that the fake GPU has passed once `at` is set.
struct FakeMoment final : GpuMoment {
  std::optional<std::chrono::nanoseconds> at;
  [[nodiscard]] std::optional<std::chrono::nanoseconds> since(const GpuMoment& earlier) const override {
    const auto& other = static_cast<const FakeMoment&>(earlier);
    if (!at || !other.at) return std::nullopt;
    return *at - *other.at;
  }
};

/// The four moments of one operation, and the times that are handed over.
struct FakeTimes {
  std::shared_ptr<FakeMoment> began = std::make_shared<FakeMoment>(), ended = std::make_shared<FakeMoment>(),
                              wait_began = std::make_shared<FakeMoment>(),
                              wait_ended = std::make_shared<FakeMoment>();
  [[nodiscard]] GpuTimes times(bool captured = false) const {
    return {wait_began, wait_ended, began, ended, captured};
  }
  /// Makes the operation last from `from` to `to`, and a wait for it begin at `wait`.
  void pass(std::chrono::nanoseconds from, std::chrono::nanoseconds wait, std::chrono::nanoseconds to) {
    began->at = from;
    wait_began->at = wait;
    ended->at = to;
    wait_ended->at = std::max(wait, to);
  }
};

const Clock::time_point kHost = Clock::time_point(std::chrono::hours(1));
GpuOrigin origin_at(std::chrono::nanoseconds gpu) {
  const auto moment = std::make_shared<FakeMoment>();
  moment->at = gpu;
  return {moment, kHost};
}

const Operation kOp{CommKind::all_reduce, DType::f32, Elements(10)};

/// The times of an operation that was issued and waited for.
FakeTimes waited_for(CommRecord& record, bool captured = false) {
  FakeTimes op;
  const std::int64_t number = record.issuing(kOp, Bytes(40), {}, Clock::now());
  record.issued(number, [] { return false; });
  record.wait_began(number);
  record.wait_ended(
      number, {}, [] { return true; }, op.times(captured));
  return op;
}

/// The waiting time that the GPU has passed so far.
std::chrono::nanoseconds waited(CommRecord& record) {
  record.read_gpu_times();
  return record.waited();
}

TEST(GpuTimes, AWaitIsWhatTheGpuMeasures) {
  CommRecord record(Rank{0}, {});
  FakeTimes hidden = waited_for(record), late = waited_for(record);
  EXPECT_EQ(record.waited(), 0ns);  // the host's time inside wait() counts nothing
  hidden.pass(1ms, 9ms, 5ms);
  late.pass(5ms, 10ms, 17ms);
  EXPECT_EQ(waited(record), 7ms);
  EXPECT_EQ(waited(record), 7ms) << "a wait counts once";
  record.reset_waited();
  EXPECT_EQ(record.waited(), 0ns);
}

TEST(GpuTimes, WhatTheGpuHasNotPassedIsLeftForLater) {
  CommRecord record(Rank{0}, {});
  FakeTimes first = waited_for(record), second = waited_for(record);
  second.pass(1ms, 2ms, 4ms);
  EXPECT_EQ(waited(record), 2ms);
  record.reset_waited();
  first.pass(0ms, 1ms, 6ms);
  EXPECT_EQ(waited(record), 5ms);
}

// A wait for an operation at the end of step 0 (a check, say) does not count for step 1.
TEST(GpuTimes, AResetForgetsWhatWasNotReadYet) {
  CommRecord record(Rank{0}, {});
  FakeTimes check = waited_for(record);
  check.pass(1ms, 2ms, 4ms);
  record.reset_waited();
  EXPECT_EQ(waited(record), 0ns);
}

TEST(GpuTimes, AWaitWithoutTheGpusTimesIsTheHosts) {
  CommRecord record(Rank{0}, {});
  const std::int64_t number = record.issuing(kOp, Bytes(40), {}, Clock::now());
  record.issued(number, [] { return false; });
  record.wait_began(number);
  record.wait_ended(number, {});
  EXPECT_GT(record.waited(), 0ns);
}

TEST(GpuTimes, SpansLieOnTheHostsClock) {
  CommRecord record(Rank{0}, {.trace_steps = 1});
  record.set_gpu_origin(origin_at(100ms));
  FakeTimes op = waited_for(record);
  op.pass(101ms, 103ms, 108ms);
  record.read_gpu_times();
  const std::vector<OpSpan> spans = record.spans();
  ASSERT_EQ(spans.size(), 1u);
  EXPECT_EQ(spans[0].began, kHost + 1ms);
  EXPECT_EQ(spans[0].ended, kHost + 8ms);
  EXPECT_EQ(spans[0].wait_began, kHost + 3ms);
  EXPECT_EQ(spans[0].wait_ended, kHost + 8ms);
}

// Nothing runs while a graph is captured; each launch passes the same moments again.
TEST(GpuTimes, CapturedWaitsCountAtEveryLaunch) {
  CommRecord record(Rank{0}, {.trace_steps = 4});
  record.set_phase(Phase::train);
  record.set_step(2);
  FakeTimes op = waited_for(record, /*captured=*/true);
  EXPECT_EQ(waited(record), 0ns);
  EXPECT_TRUE(record.spans().empty());
  for (std::int64_t step = 2; step < 6; ++step) {
    record.set_step(step);
    record.reset_waited();
    record.set_gpu_origin(origin_at(10ms * step));
    record.replayed([] { return true; });
    op.pass(10ms * step + 1ms, 10ms * step + 2ms, 10ms * step + 2ms + 1ms * step);
    EXPECT_EQ(waited(record), 1ms * step);
  }
  const std::vector<OpSpan> spans = record.spans();
  ASSERT_EQ(spans.size(), 2u) << "steps 2 and 3 are traced";
  EXPECT_EQ(spans[1].step, 3);
  EXPECT_EQ(spans[1].phase, Phase::train);
  EXPECT_EQ(spans[1].op, kOp);
  EXPECT_EQ(spans[1].sent, Bytes(40));
  EXPECT_EQ(spans[1].began, kHost + 1ms);
  EXPECT_EQ(spans[1].wait_ended, kHost + 5ms);
}

TEST(GpuTimes, OfLaunchesThatNobodyReadTheLastCounts) {
  CommRecord record(Rank{0}, {});
  FakeTimes op = waited_for(record, /*captured=*/true);
  for (int k = 0; k < 3; ++k) record.replayed([] { return true; });
  op.pass(1ms, 2ms, 4ms);
  EXPECT_EQ(waited(record), 2ms);
}

TEST(GpuTimes, WaitsThatNobodyReadsDoNotPileUp) {
  CommRecord record(Rank{0}, {});
  const FakeTimes first = waited_for(record);
  for (std::size_t k = 0; k < CommRecord::kMostUnread; ++k) (void)waited_for(record);
  EXPECT_EQ(first.began.use_count(), 1) << "the oldest is forgotten";
}

}  // namespace
}  // namespace sc
