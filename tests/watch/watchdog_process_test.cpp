// Tests real ranks under mpirun: a rank that hangs, dies or is stopped ends the job with one message that
// names the rank, and no process is left.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "tests/watch/job.h"

namespace sc {
namespace {

using test::Outcome;

std::int64_t count(const Outcome& outcome, const std::string& what) {
  std::int64_t n = 0;
  for (std::size_t at = outcome.text.find(what); at != std::string::npos;
       at = outcome.text.find(what, at + 1))
    ++n;
  return n;
}

Outcome run_job(int ranks, const std::string& fault) {
  static std::atomic<int> jobs = 0;
  const std::string board =
      ::testing::TempDir() + "watchdog_board_" + std::to_string(::getpid()) + "_" + std::to_string(++jobs);
  const std::string mpirun = ranks == 0 ? ""
                                        : std::string(MPIRUN) +
                                              " -q --oversubscribe --bind-to none --timeout 60 -n " +
                                              std::to_string(ranks) + " ";
  const Outcome outcome = test::run_command(mpirun + WATCHDOG_PROGRAM + " " + board + " 1500 " + fault);
  std::filesystem::remove(board);
  return outcome;
}

/// The outcome of a job, of which all run on the first call. Jobs wait more than they compute, so three run
/// at a time.
const Outcome& outcome_of(int ranks, const std::string& fault) {
  using Job = std::pair<int, std::string>;
  static const std::vector<Job> jobs = {{3, "hang@1,4"}, {3, "kill@2,4"}, {2, "stop@0,4"}, {3, "throw@1,4"},
                                        {1, "hang@0,4"}, {0, "hang@0,4"}, {3, "none"},     {0, "none"}};
  static std::map<Job, Outcome> outcomes;
  static std::once_flag once;
  std::call_once(once, [] {
    for (const Job& job : jobs) outcomes[job];
    std::atomic<std::size_t> next = 0;
    std::vector<std::jthread> workers;
    for (int k = 0; k < 3; ++k) {
      workers.emplace_back([&] {
        for (std::size_t i = next++; i < jobs.size(); i = next++)
          outcomes.at(jobs[i]) = run_job(jobs[i].first, jobs[i].second);
      });
    }
  });
  return outcomes.at({ranks, fault});
}

void expect_lost(const Outcome& outcome, int ranks, const std::string& lost, const std::string& how,
                 const std::string& last) {
  EXPECT_EQ(count(outcome, "\nerror: "), 1) << outcome.text;
  EXPECT_EQ(count(outcome, "\nerror: " + lost), 1) << outcome.text;
  EXPECT_TRUE(outcome.has(how)) << outcome.text;
  EXPECT_TRUE(outcome.has(last)) << outcome.text;
  test::expect_no_orphans(outcome, ranks, std::chrono::seconds(5));
}

TEST(WatchdogProcess, NothingHappens) {
  for (const int ranks : {0, 3}) {
    const Outcome& outcome = outcome_of(ranks, "none");
    EXPECT_EQ(outcome.code, 0) << outcome.text;
    EXPECT_EQ(count(outcome, "error"), 0) << outcome.text;
  }
}

struct Broken {
  int ranks;  // 0: without mpirun
  std::string fault;
  std::set<int> codes;
  std::string lost, how, last;
};

TEST(WatchdogProcess, ARankThatIsLostIsNamedOnce) {
  const std::string stuck = "rank 0 is stuck: nothing has moved for more than 1.5 s in train step 4",
                    last = "last operation 5 (all_reduce of 1,000 f32), train step 4";
  const Broken all[] = {
      {3, "hang@1,4", {75}, "lost rank 1: rank ", "is alive, but does not come to the next operation", last},
      {0, "hang@0,4", {75}, stuck, "last operation 5", "train step 4"},
      {1, "hang@0,4", {75}, stuck, "last operation 5", "train step 4"},
      // mpirun sees a rank's death, ends the other ranks and reports 137, which launch.sh turns into 75. The
      // message comes from this project's watchdog.
      {3, "kill@2,4", {75, 137}, "lost rank 2: noticed by rank ", "is gone", last},
      {2,
       "stop@0,4",
       {75},
       "lost rank 0: rank 1 waits for its operation 6",
       "has stopped (no heartbeat for",
       last},
      {3, "throw@1,4", {70}, "rank 1: injected error: rank 1, step 4", "", ""}};
  for (const Broken& broken : all) {
    SCOPED_TRACE(std::to_string(broken.ranks) + " " + broken.fault);
    const Outcome& outcome = outcome_of(broken.ranks, broken.fault);
    EXPECT_TRUE(broken.codes.contains(outcome.code)) << outcome.code;
    expect_lost(outcome, std::max(1, broken.ranks), broken.lost, broken.how, broken.last);
  }
  const Outcome& hang = outcome_of(3, "hang@1,4");
  EXPECT_TRUE(
      hang.has("waits for its operation 6 (all_reduce of 1,000 f32, train step 4) for more than 1.5 s"))
      << hang.text;
}

}  // namespace
}  // namespace sc
