// Tests the step times that lesson 06 reports: overlapping transfers count once, and the first step is left
// out.
#include "lessons/06_infinity/step_clock.h"

#include <gtest/gtest.h>

#include <map>

#include "tests/storage/aligned_bytes.h"
#include "tests/storage/temp_dir.h"

namespace sc {
namespace {

using namespace std::chrono_literals;

std::map<std::string, double> shares(StepClock& clock) {
  std::map<std::string, double> found;
  for (const Timetable::Share& share : clock.of_a_step()) found[share.name] = share.seconds.at(0);
  return found;
}

TEST(StepClock, WorkAtTheSameTimeCountsOnce) {
  StepClock clock;
  const auto t = StepClock::Clock::now();
  clock.updated(t, t + 1s);
  EXPECT_TRUE(clock.of_a_step().empty());
  clock.end_step();  // what was before does not count
  EXPECT_TRUE(clock.of_a_step().empty());
  clock.updated(t + 2s, t + 5s);
  clock.updated(t + 3s, t + 4s);  // within
  clock.updated(t + 4s, t + 6s);  // beyond
  clock.waited(t + 8s, t + 9s);
  clock.end_step();
  clock.end_step();
  clock.waited(t + 20s, t + 30s);  // nor what is after the last step
  const std::map<std::string, double> found = shares(clock);
  EXPECT_DOUBLE_EQ(found.at("host updates"), 2);  // 4 s in two steps
  EXPECT_DOUBLE_EQ(found.at("forward waits"), 0.5);
  EXPECT_EQ(found.at("disk reads"), 0);
  EXPECT_GE(found.at("step"), 0);
}

TEST(StepClock, TransfersCountFromTheirCallToTheirEnd) {
  const test::TempDir dir;
  const std::shared_ptr<FileOps> ops = posix_file_ops();
  BlockFile file(*ops, {.path = dir.path() / "states"}, {Bytes(8192)});
  StepClock clock;
  clock.end_step();
  test::AlignedBytes bytes(8192);
  const auto begin = StepClock::Clock::now();
  for (const CommKind kind : {CommKind::disk_write, CommKind::disk_read}) {
    const auto issued = StepClock::Clock::now();
    DiskTransfer transfer =
        kind == CommKind::disk_read ? file.read(0, bytes.span()) : file.write(0, bytes.span());
    clock.issued(kind, issued, transfer);
    transfer.wait();
  }
  const double most = std::chrono::duration<double>(StepClock::Clock::now() - begin).count();
  clock.end_step();
  const std::map<std::string, double> found = shares(clock);
  EXPECT_GT(found.at("disk reads"), 0);
  EXPECT_GT(found.at("disk writes"), 0);
  EXPECT_NEAR(found.at("disk does either"), found.at("disk reads") + found.at("disk writes"), 1e-9);
  EXPECT_LE(found.at("disk does either"), most);
}

}  // namespace
}  // namespace sc
