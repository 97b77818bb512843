#include "common/watch/timeline.h"

#include <gtest/gtest.h>

#include <thread>

namespace sc {
namespace {

using namespace std::chrono_literals;

TEST(Timeline, KeepsTheSpansOfTheStepsThatItIsAskedFor) {
  Timeline timeline;
  { const auto before = timeline.mark("before"); }
  timeline.begin_step(4);
  {
    const auto outer = timeline.mark("outer");
    const auto inner = timeline.mark("inner");
    std::this_thread::sleep_for(2ms);
  }
  timeline.end_step();
  { const auto after = timeline.mark("after"); }
  const std::vector<Timeline::Span> spans = timeline.spans();
  ASSERT_EQ(spans.size(), 2u);
  EXPECT_EQ(spans[0].name, "outer");
  EXPECT_EQ(spans[1].name, "inner");
  EXPECT_EQ(spans[1].step, 4);
  EXPECT_LE(spans[0].begin, spans[1].begin);
  EXPECT_GE(spans[0].end, spans[1].end);
  EXPECT_GE(spans[1].end - spans[1].begin, 2ms);
}

/// A GPU that comes past a point when it is told to.
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
  timeline.begin_step(0,
                      Timeline::GpuClock{{std::make_shared<Passed>(100ns), Timeline::Clock::time_point(1s)},
                                         [&] { return std::make_shared<Passed>(now); }});
  {
    const auto mark = timeline.mark("F0");
    now = 600ns;
  }
  ASSERT_EQ(timeline.spans().size(), 1u);
  EXPECT_EQ(timeline.spans()[0].begin, Timeline::Clock::time_point(1s + 250ns));
  EXPECT_EQ(timeline.spans()[0].end, Timeline::Clock::time_point(1s + 500ns));
}

}  // namespace
}  // namespace sc
