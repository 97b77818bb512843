// Tests lesson 08 saved and resumed while micro-batches are on their way: it ends with the bits of an
// undisturbed run, after any number of windows. Its rings of sums, results and versions have been round
// several times by then.
#include "common/watch/deadline.h"
#include "tests/lessons/versions_support.h"
#include "tests/storage/temp_dir.h"
#include "tests/support/pairwise.h"
#include "tests/support/saving.h"

namespace sc {
namespace {

using namespace std::chrono_literals;
using pipedream::VersionRule, test::rule, test::workload_of;

constexpr std::int64_t kSavedVersionsSteps = 14;

/// Tests by number of stages and version rule.
class VersionsSaved : public ::testing::TestWithParam<std::tuple<int, VersionRule>> {
 protected:
  [[nodiscard]] static int stages() { return std::get<0>(GetParam()); }
  [[nodiscard]] static VersionOptions options(std::int64_t update_every) {
    return rule(std::get<1>(GetParam()), update_every);
  }
  /// The number of micro-batches, and of those per update; 0: the rule's own number.
  static constexpr std::pair<std::int64_t, std::int64_t> kUpdates[] = {{4, 0}, {8, 4}};

  const Deadline deadline_{60s, "a save left a stage behind"};
  sc::test::TempDir dir_;
};

// Compares every save, and each of the runs that go on, and what the last of them saves.
TEST_P(VersionsSaved, RunsGoOnAfterAnyNumberOfWindows) {
  test::Lot lot(stages() - 2, 3);
  for (const auto& [micro, every] : kUpdates) {
    SCOPED_TRACE("an update every " + std::to_string(every));
    const Workload w = workload_of(4, micro);
    const VersionOptions o = options(every);
    const std::vector<test::RankResult> expected = {
        test::stale_reference(w, stages(), o, kSavedVersionsSteps)};
    const sc::test::TempDir saves;
    test::expect_goes_on(
        test::run_part<WeightVersions>(stages(), w, o,
                                       {.last = kSavedVersionsSteps, .save_every = 1, .dir = saves.path()}),
        expected);
    for (const std::int64_t done : {1, 3, 7, 8, 9, 10, 11, 12, 13}) {
      if (!lot.draws()) continue;
      SCOPED_TRACE("resumed after " + std::to_string(done));
      test::expect_goes_on(
          test::run_part<WeightVersions>(
              stages(), w, o,
              {.first = done, .last = kSavedVersionsSteps, .from = test::saved_after(done, saves.path())}),
          expected);
    }
  }
}

// Each step is a run of its own, and messages arrive as late as their wait allows.
TEST_P(VersionsSaved, ARunOfManyPartsIsOneRun) {
  test::Lot lot(stages() - 2, 3);
  for (const auto& [micro, every] : kUpdates) {
    if (!lot.draws()) continue;
    SCOPED_TRACE("an update every " + std::to_string(every));
    Workload w = workload_of(4, micro);
    w.precision.dtype = every == 0 ? DType::bf16 : DType::f32;
    const VersionOptions o = options(every);
    const std::vector<test::RankResult> expected = {
        test::stale_reference(w, stages(), o, kSavedVersionsSteps)};
    const sc::test::TempDir saves;
    for (std::int64_t done = 0; done < kSavedVersionsSteps; ++done) {
      SCOPED_TRACE("step " + std::to_string(done));
      const std::vector<test::RankResult> found =
          test::run_part<WeightVersions>(stages(), w, o,
                                         {.first = done,
                                          .last = done + 1,
                                          .from = test::saved_after(done, saves.path()),
                                          .save_every = 1,
                                          .dir = saves.path()},
                                         test::delayed);
      if (done + 1 == kSavedVersionsSteps) {
        test::expect_goes_on(found, expected);
        continue;
      }
      for (const test::RankResult& rank : found)
        for (std::size_t i = 0; i < rank.losses.size(); ++i)
          EXPECT_EQ(rank.losses[i], expected[0].losses[static_cast<std::size_t>(rank.first_result) + i]);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(StagesAndRules, VersionsSaved,
                         ::testing::Combine(::testing::Values(2, 3, 4),
                                            ::testing::Values(VersionRule::stash, VersionRule::vertical_sync,
                                                              VersionRule::two_buffers)));

// Without versions nothing can be saved, but a run longer than any ring must still be right.
TEST(WeightVersions, EveryRuleGoesOnForManyWindows) {
  for (const VersionRule versions : test::kRules)
    for (const int stages : {2, 3, 4}) {
      const Workload w = workload_of(4, 4);
      const RunShape first = test::shape_for(w, stages, 0, CommBackend::local,
                                             Mesh(WorldSize(stages), {{Axis::stages, stages}}));
      EXPECT_EQ(WeightVersionsPlans(rule(versions)).facts(first).no_checkpoint.empty(),
                versions != VersionRule::none);
      SCOPED_TRACE(std::string(name_of(versions)) + ", " + std::to_string(stages) + " stages");
      test::expect_equals_reference(
          test::run_local<WeightVersions>(stages, w, rule(versions), kSavedVersionsSteps, test::delayed),
          test::stale_reference(w, stages, rule(versions), kSavedVersionsSteps));
    }
}

}  // namespace
}  // namespace sc
