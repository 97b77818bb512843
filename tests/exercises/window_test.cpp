// Tests lesson 06's exercise: the order in which pieces pass through a window comes to the formulas that its
// README states.
#include "tests/exercises/window.h"

#include <gtest/gtest.h>

#include <numeric>

namespace sc::exercise {
namespace {

// Windows with disks and hosts of which one is the slower by far, or by little. Pieces are parts of a block,
// hence alike.
std::vector<WindowCase> cases(std::int64_t buffers) {
  std::vector<WindowCase> cases;
  for (const std::int64_t piece : {393'632, 787'264, 3'149'056})
    for (const double mbps : {50.0, 4000.0, 24'000.0})
      for (const double adam : {100.0, 500.0, 5000.0}) cases.push_back({buffers, piece, mbps, adam});
  return cases;
}

TEST(Window, WithOneBufferAllTakeTurns) {
  for (const WindowCase& window : cases(1))
    EXPECT_NEAR(seconds_per_update(window) / seconds_by_formula(window), 1, 1e-6) << window.piece;
}

TEST(Window, FromThreeBuffersOnTheSlowerOneSetsThePace) {
  for (const std::int64_t buffers : {3, 4, 16})
    for (const WindowCase& window : cases(buffers)) {
      const double off = seconds_per_update(window) / seconds_by_formula(window);
      EXPECT_GT(off, 1 - 1e-6);
      EXPECT_LT(off, 1.01) << buffers << " buffers of " << window.piece << ", " << window.disk_mbps
                           << " MB/s, " << window.adam_mparams_per_second;
    }
}

// The last piece of a block is a small one: while it is updated the next one has not been read. More buffers
// even that out.
TEST(Window, ThreeBuffersWaitWherePiecesAreNotAlike) {
  const WindowCase three{3, 4'000'000, 24'000, 500}, sixteen{16, 4'000'000, 24'000, 500};
  EXPECT_GT(seconds_per_update(three), 1.05 * seconds_by_formula(three));
  EXPECT_LT(seconds_per_update(sixteen), 1.05 * seconds_by_formula(sixteen));
}

// Two buffers are not enough on a disk that does one thing at a time: the next piece is asked for when this
// one has been updated.
TEST(Window, TwoBuffersAreNotThree) {
  const WindowCase two{2, 4'000'000, 24'000, 500};
  EXPECT_GT(seconds_per_update(two), 1.3 * seconds_by_formula(two));
}

TEST(Window, HoldsSixteenBytesPerElement) {
  for (const WindowCase& window : cases(3)) {
    const double bytes = static_cast<double>(window_bytes(window).value());
    EXPECT_NEAR(bytes / (16.0 * 3 * static_cast<double>(window.piece)), 1, 0.002);
  }
  EXPECT_EQ(window_bytes({3, 4'000'000}).value(), 3 * (48'001'024 + 8'000'000 + 8'000'000));
}

TEST(Window, PiecesAreTheModel) {
  const std::vector<std::int64_t> pieces = pieces_of({1, 4'000'000});
  EXPECT_EQ(pieces.size(), 111U);  // as --plan says
  EXPECT_EQ(std::accumulate(pieces.begin(), pieces.end(), std::int64_t{0}), 354'871'296);
}

}  // namespace
}  // namespace sc::exercise
