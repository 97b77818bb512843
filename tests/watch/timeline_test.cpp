#include "common/watch/timeline.h"

#include <gtest/gtest.h>

#include <thread>

namespace sc {
namespace {

using namespace std::chrono_literals;

TEST(Timeline, KeepsTheSpansOfTheStepsThatItIsAskedFor) {
  Timeline timeline;
  { const auto before = timeline.mark("before"); }
  timeline.begin_step(4, {.drawn = true});
  {
    const auto outer = timeline.mark("outer");
    const auto inner = timeline.mark("inner");
    std::this_thread::sleep_for(2ms);
  }
  timeline.end_step();
  { const auto after = timeline.mark("after"); }
  const std::vector<Timeline::Span> spans = timeline.drawn();
  ASSERT_EQ(spans.size(), 2u);
  EXPECT_EQ(spans[0].name, "outer");
  EXPECT_EQ(spans[1].name, "inner");
  EXPECT_EQ(spans[1].step, 4);
  EXPECT_LE(spans[0].begin, spans[1].begin);
  EXPECT_GE(spans[0].end, spans[1].end);
  EXPECT_GE(spans[1].end - spans[1].begin, 2ms);
}

TEST(Timeline, CountsMicroBatchesOfAStep) {
  Timeline timeline;
  for (int step = 0; step < 2; ++step) {
    timeline.begin_step(step, {.drawn = true});
    for (int j = 0; j < 2; ++j) {
      timeline.begin_micro_batch();
      const auto mark = timeline.mark(Pass::forward, 3);
    }
    { const auto mark = timeline.mark(Pass::update, 3); }
    timeline.end_step();
    timeline.begin_micro_batch();  // an evaluation's
  }
  std::vector<int> micro_batches;
  for (const Timeline::Span& span : timeline.drawn()) {
    EXPECT_EQ(span.computed->unit, 3);
    micro_batches.push_back(span.computed->micro_batch);
  }
  EXPECT_EQ(micro_batches, (std::vector<int>{0, 1, -1, 0, 1, -1}));
}

TEST(Timeline, KeepsTheLastStepsWhereSomebodyAsks) {
  Timeline timeline;
  timeline.keep_recent(2);
  for (int step = 0; step < 5; ++step) {
    timeline.begin_step(step, {.drawn = step == 1});
    const auto mark = timeline.mark("F" + std::to_string(step));
    timeline.end_step();
  }
  const auto names = [](const std::vector<Timeline::Span>& spans) {
    std::string text;
    for (const Timeline::Span& span : spans) text += span.name;
    return text;
  };
  EXPECT_EQ(names(timeline.recent()), "F3F4");
  EXPECT_EQ(names(timeline.drawn()), "F1");
}

TEST(Timeline, TakesWhatOtherThreadsDid) {
  Timeline timeline;
  timeline.add({Pass::update, 0}, {}, {});
  timeline.begin_step(2, {.drawn = true});
  timeline.add({Pass::update, 3}, Timeline::Clock::time_point(1s), Timeline::Clock::time_point(3s));
  timeline.end_step();
  ASSERT_EQ(timeline.drawn().size(), 1u);
  EXPECT_EQ(timeline.drawn()[0].computed->unit, 3);
  EXPECT_TRUE(timeline.drawn()[0].on_host);
  EXPECT_EQ(timeline.drawn()[0].end - timeline.drawn()[0].begin, 2s);
}

TEST(Timeline, AMarkedStepKeepsChangesAndAReplayedOneIsTakenEachTime) {
  Timeline timeline;
  timeline.gives_up_params(1);  // nobody asked
  timeline.begin_step(2, {.marked = true});
  {
    const auto mark = timeline.mark(Pass::forward, 4);
    timeline.gives_up_params(-1);
    timeline.gives_up_params(3);
  }
  timeline.end_step();
  EXPECT_TRUE(timeline.marked().empty());
  timeline.settle(2);
  timeline.settle(3);
  timeline.settle();
  ASSERT_EQ(timeline.marked().size(), 2u);
  EXPECT_EQ(timeline.marked()[1].step, 3);
  ASSERT_EQ(timeline.changes().size(), 2u);
  EXPECT_EQ(timeline.changes()[0].unit, 3);
  EXPECT_TRUE(timeline.drawn().empty());
}

TEST(Timeline, SaysWhatComesNext) {
  Timeline timeline;
  timeline.comes_to("nobody listens");
  std::string heard;
  timeline.on_coming_to([&](std::string_view what) { heard = what; });
  timeline.comes_to("action 7: SA1");
  EXPECT_EQ(heard, "action 7: SA1");
}

/// A GPU time that the test sets, in place of an event on a GPU.
class Passed : public GpuMoment {
 public:
  explicit Passed(std::chrono::nanoseconds at) : at_(at) {}
  [[nodiscard]] std::optional<std::chrono::nanoseconds> since(const GpuMoment& earlier) const override {
    return at_ - dynamic_cast<const Passed&>(earlier).at_;
  }

 private:
  std::chrono::nanoseconds at_;
};

TEST(Timeline, OfAGpuAreItsOwnTimesOnTheHostsClock) {
  std::chrono::nanoseconds now = 350ns;
  Timeline timeline;
  timeline.begin_step(0, {.drawn = true},
                      Timeline::GpuClock{{std::make_shared<Passed>(100ns), Timeline::Clock::time_point(1s)},
                                         [&] { return std::make_shared<Passed>(now); }});
  {
    const auto mark = timeline.mark("F0");
    now = 600ns;
  }
  ASSERT_EQ(timeline.drawn().size(), 1u);
  EXPECT_EQ(timeline.drawn()[0].begin, Timeline::Clock::time_point(1s + 250ns));
  EXPECT_EQ(timeline.drawn()[0].end, Timeline::Clock::time_point(1s + 500ns));
}

}  // namespace
}  // namespace sc
