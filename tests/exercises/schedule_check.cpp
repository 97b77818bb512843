#include <array>

#include "lessons/07_pipeline/pipeline.h"
#include "lessons/reference/reference_order.h"
#include "pipedream/check.h"
#include "pipedream/error.h"
#include "pipedream/schedule_file.h"
#include "pipedream/simulate.h"
#include "tests/exercises/check.h"
#include "tests/support/harness.h"

namespace sc::exercise {
namespace {

constexpr int kStages = 3, kMicroBatches = 4;
constexpr std::array<int, kStages> kAlive = {2, 2, 1};

// The least makespan while stage 0 keeps at most two micro-batches alive, in any order. Its first backward
// begins at time 5 or later, after three F and two I of a unit each. Before its fourth forward it must have
// ended two backwards (4 units) and done the third forward, which waits for the first of these backwards: so
// that forward begins at 10 or later. It takes 1, and the micro-batch then needs two more F, three I and W:
// 10 + 1 + 6.
constexpr double kMakespan = 17;

pipedream::Schedule read(const std::string& path) {
  try {
    return pipedream::read_schedule(path);
  } catch (const pipedream::InputError& error) {
    throw NotReached(error.what() + std::string("\n") + error.fix());
  }
}

void check_rules(const pipedream::Schedule& schedule, const std::string& path) {
  require(schedule.stages == kStages && schedule.microbatches == kMicroBatches && schedule.chunks == 1 &&
              schedule.versions == pipedream::VersionRule::flush,
          "leave stages (3), microbatches (4), chunks (1) and versions (flush) as they were");
  const pipedream::CheckReport report = pipedream::check(schedule);
  if (report.ok()) return;
  throw NotReached("it breaks a rule\n" + pipedream::to_text(report.violations.front()) +
                   "\npipedream/run.sh check --file " + path + " lists them all");
}

// Three ranks execute the file, with and without random delays, and end with lesson 00's bits.
void check_training(const std::string& path) {
  constexpr std::int64_t kSteps = 3;
  Workload w = test::odd_workload();
  w.batch.global = kMicroBatches * w.batch.micro;
  const test::RankResult expected =
      test::run_local<ReferenceOrder>(1, w, {.tied_sum = TiedSum::split}, kSteps).at(0);
  for (const test::Wrap& wrap : {test::Wrap(), test::Wrap(test::delayed)}) {
    const std::vector<test::RankResult> ranks =
        test::run_local<Pipeline>(kStages, w, {.schedule = "file:" + path}, kSteps, wrap);
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      const ::testing::AssertionResult equal = test::bit_equal(ranks[rank], expected);
      require(equal,
              "rank " + std::to_string(rank) + " does not end with lesson 00's bits: " + equal.message());
    }
  }
}

void check_alive(const pipedream::Schedule& schedule) {
  const std::vector<pipedream::StageCounts> stages = pipedream::count(schedule);
  for (std::size_t stage = 0; stage < kAlive.size(); ++stage) {
    const int alive = stages[stage].activations;
    require(alive <= kAlive[stage], "it trains, but stage " + std::to_string(stage) + " keeps " +
                                        std::to_string(alive) + " micro-batches alive; " +
                                        std::to_string(kAlive[stage]) + " are allowed");
  }
}

void check_makespan(const pipedream::Schedule& schedule, const std::string& path) {
  const auto text = [](double time) { return std::to_string(static_cast<int>(time)); };
  const double makespan = pipedream::simulate(schedule, {}).makespan;
  require(makespan <= kMakespan, "it trains and keeps no more alive than allowed, but takes " +
                                     text(makespan) + "; " + text(kMakespan) +
                                     " are possible\npipedream/run.sh simulate --file " + path +
                                     " shows who waits");
}

std::string check() {
  ::testing::GTEST_FLAG(throw_on_failure) = true;  // the harness also checks memory
  const std::string path = edited_file();
  const pipedream::Schedule schedule = read(path);
  check_rules(schedule, path);
  check_training(path);
  check_alive(schedule);
  check_makespan(schedule, path);
  return "3 ranks train with it to lesson 00's bits; at most 2, 2, 1 micro-batches alive, simulated makespan "
         "17";
}

}  // namespace

const Exercise kExercise{"schedule",
                         "the stage before waits only for I: split B into I and W and send the gradient "
                         "between them; then look at the order on stage 1",
                         check};

}  // namespace sc::exercise
