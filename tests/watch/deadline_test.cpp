#include "common/watch/deadline.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace sc {
namespace {

using namespace std::chrono_literals;

TEST(Deadline, ExpiresOnceWhenItsStretchLasts) {
  std::atomic<int> expired = 0;
  const Deadline deadline(1ms, [&] { ++expired; });
  while (expired == 0) std::this_thread::sleep_for(1ms);
  std::this_thread::sleep_for(20ms);
  EXPECT_EQ(expired, 1);
}

TEST(Deadline, DoesNothingWhenTheStretchEnds) {
  std::atomic<int> expired = 0;
  {
    const Deadline deadline(1h, [&] { ++expired; });
  }
  EXPECT_EQ(expired, 0);
}

TEST(DeadlineDeathTest, SaysWhatLastedAndExitsWith75) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        const Deadline deadline(1ms, "the ranks did not meet");
        std::this_thread::sleep_for(1min);
      },
      ::testing::ExitedWithCode(75), "^error: the ranks did not meet\n$");
}

}  // namespace
}  // namespace sc
