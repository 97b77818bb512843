// Real ranks on GPUs under mpirun: a rank that hangs, dies or is stopped while the others' GPUs wait for it
// in NCCL is named, and all ranks are gone within 10 s.
#include <unistd.h>

#include <filesystem>

#include "tests/watch/job.h"

namespace sc {
namespace {

using Clock = std::chrono::steady_clock;

using test::Outcome;

Outcome run_job(int ranks, const std::string& mode, const std::string& fault) {
  static int jobs = 0;
  const std::string board =
      ::testing::TempDir() + "nccl_board_" + std::to_string(::getpid()) + "_" + std::to_string(++jobs);
  const std::string command = std::string(MPIRUN) + " -q --oversubscribe --bind-to none --timeout 90 -n " +
                              std::to_string(ranks) + " " + NCCL_PROGRAM + " " + mode + " " + board +
                              " 3000 " + fault;
  const Outcome outcome = test::run_command(command);
  std::filesystem::remove(board);
  return outcome;
}

// Checks that all ranks are gone within the limit; a dying rank's kernels are torn down first.
void expect_all_gone(const Outcome& outcome, int ranks) {
  const std::regex broken("broken at ([0-9]+) ms");
  std::smatch match;
  ASSERT_TRUE(std::regex_search(outcome.text, match, broken)) << outcome.text;
  const Clock::time_point began{std::chrono::milliseconds(std::stoll(match[1]))};
  test::expect_no_orphans(outcome, ranks, std::chrono::seconds(20));
  const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - began);
  EXPECT_LT(took.count(), 10'000) << "from the fault to the end of the last rank\n" << outcome.text;
}

struct Broken {
  int ranks;
  std::string mode, fault, lost, how;
  bool killed = false;
};

class NcclProcess : public ::testing::TestWithParam<Broken> {};

TEST_P(NcclProcess, IsNamedAndAllAreGone) {
  const Broken& broken = GetParam();
  const Outcome outcome = run_job(broken.ranks, broken.mode, broken.fault);
  if (outcome.code == 77) GTEST_SKIP() << outcome.text;
  // mpirun sees a death itself and may report it before the watchdog's code does; launch.sh makes 75 of that.
  EXPECT_TRUE(outcome.code == 75 || (broken.killed && outcome.code == 137)) << outcome.code << outcome.text;
  EXPECT_TRUE(outcome.has("error: lost rank " + broken.lost + ":")) << outcome.text;
  EXPECT_TRUE(outcome.has(broken.how)) << outcome.text;
  const std::string kind = broken.mode == "window"    ? "all_gather"
                           : broken.mode == "message" ? ""
                                                      : "all_reduce";
  EXPECT_TRUE(outcome.has(kind + " of 1,048,576 f32")) << outcome.text;
  expect_all_gone(outcome, broken.ranks);
}

INSTANTIATE_TEST_SUITE_P(
    Faults, NcclProcess,
    ::testing::Values(
        Broken{2, "nccl", "hang@1,4", "1", "is alive, but does not come to the next operation"},
        Broken{2, "nccl", "kill@1,4", "1", "is gone", true},
        Broken{2, "nccl", "stop@0,4", "0", "has stopped (no heartbeat for"},
        Broken{2, "graph", "hang@1,5", "1", "is alive, but does not come to the next operation"},
        Broken{2, "graph", "kill@0,5", "0", "is gone", true},
        Broken{4, "nccl", "hang@2,4", "2", "is alive, but does not come to the next operation"},
        Broken{4, "graph", "kill@3,5", "3", "is gone", true},
        Broken{2, "window", "hang@1,5", "1", "is alive, but does not come to the next operation"},
        Broken{2, "window", "hang@1,1", "1", "is alive, but does not come to the next operation"},
        Broken{2, "window", "kill@0,5", "0", "is gone", true},
        Broken{2, "message", "hang@1,1", "1", "is alive, but does not come to the next operation"},
        Broken{2, "message", "hang@1,5", "1", "is alive, but does not come to the next operation"},
        Broken{2, "message", "stop@0,5", "0", "has stopped (no heartbeat for"},
        Broken{2, "message", "kill@0,5", "0", "is gone", true},
        Broken{2, "sum", "hang@1,5", "1", "is alive, but does not come to the next operation"},
        Broken{2, "sum", "stop@0,5", "0", "has stopped (no heartbeat for"},
        Broken{2, "sum", "kill@0,5", "0", "is gone", true},
        Broken{2, "staged", "hang@1,4", "1", "is alive, but does not come to the next operation"},
        Broken{2, "staged", "kill@1,4", "1", "is gone", true}),
    [](const auto& info) {
      std::string name = std::to_string(info.param.ranks) + info.param.mode + "_" + info.param.fault;
      for (char& c : name) {
        if (c == '@' || c == ',') c = '_';
      }
      return name;
    });

class WholeJob : public ::testing::TestWithParam<std::pair<int, std::string>> {};

TEST_P(WholeJob, EndsWell) {
  const auto& [ranks, mode] = GetParam();
  const Outcome outcome = run_job(ranks, mode, "none");
  if (outcome.code == 77) GTEST_SKIP() << outcome.text;
  EXPECT_EQ(outcome.code, 0) << outcome.text;
  EXPECT_FALSE(outcome.has("error")) << outcome.text;
  EXPECT_EQ(outcome.has("ranks share a GPU"), mode == "staged") << outcome.text;
}

INSTANTIATE_TEST_SUITE_P(Jobs, WholeJob,
                         ::testing::Values(std::pair(2, "nccl"), std::pair(2, "graph"), std::pair(4, "graph"),
                                           std::pair(2, "window"), std::pair(2, "message"),
                                           std::pair(2, "sum"), std::pair(2, "staged")),
                         [](const auto& info) {
                           return std::to_string(info.param.first) + info.param.second;
                         });

// Nine ranks are more than any machine has GPUs; without a GPU the refusal is another one.
TEST(Refused, MoreRanksThanGpus) {
  const Outcome outcome = run_job(9, "refuse", "none");
  EXPECT_EQ(outcome.code, 69) << outcome.text;
  if (outcome.has("no GPU found")) GTEST_SKIP() << outcome.text;
  EXPECT_TRUE(outcome.has("--share-gpu")) << outcome.text;
}

}  // namespace
}  // namespace sc
