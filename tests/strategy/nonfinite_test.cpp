// Tests the message that names step, rank and unit of a gradient that is not finite, equal on every rank.
#include "common/strategy/nonfinite.h"

#include <ATen/ops/ones.h>

#include <limits>

#include "common/base/check.h"
#include "tests/support/fake_strategy.h"

namespace sc {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();
const std::string kFix =
    "\n  fix: a smaller optim.lr, a longer optim.warmup_steps, or optim.clip=1 where it is 0";

/// One rank's state: units with a spoiled summed gradient, and whether the last local gradient is spoiled.
struct Held {
  std::vector<int> units;
  bool own = false;
  double value = kNan;
  int local_unit = 0;  // whose gradient the last local one is
};

at::Tensor vector_of(bool spoiled, double value) {
  at::Tensor v = at::ones({8}, at::kFloat);
  if (spoiled) v.select(0, 5).fill_(value);
  return v;
}

test::FakeStrategy strategy_of(const Held& held) {
  test::FakeStrategy strategy;
  strategy.slices.push_back({Purpose::workspace,
                             held.local_unit,
                             Segment::sharded,
                             {0, 8},
                             in_tensor(vector_of(held.own, held.value))});
  for (int unit = 0; unit < 5; ++unit) {
    const bool spoiled = std::find(held.units.begin(), held.units.end(), unit) != held.units.end();
    strategy.slices.push_back(
        {Purpose::gradients, unit, Segment::sharded, {0, 8}, in_tensor(vector_of(spoiled, held.value))});
    strategy.slices.push_back({Purpose::momentum,
                               unit,
                               Segment::sharded,
                               {0, 8},
                               in_tensor(vector_of(true, kNan))});  // not looked at
  }
  return strategy;
}

/// The message about a step, which must be the same on all ranks.
std::string message_of(const std::vector<Held>& ranks, double loss, std::int64_t stages = 1,
                       std::int64_t tensor = 1) {
  const auto thrown = test::on_ranks(static_cast<int>(ranks.size()), [&](Communicator& comm) {
    test::FakeStrategy strategy = strategy_of(ranks[static_cast<std::size_t>(to_int(comm.rank()))]);
    RunShape shape;
    shape.mesh = Mesh(comm.size(), {{Axis::stages, stages}, {Axis::tensor, tensor}});
    detail::throw_nonfinite(strategy, loss, 7, shape, comm);
  });
  std::string first;
  for (const std::exception_ptr& error : thrown) {
    try {
      std::rethrow_exception(error);
    } catch (const ClaimError& claim) {
      if (first.empty()) first = claim.what();
      EXPECT_EQ(claim.what(), first);
    }
  }
  return first;
}

TEST(Nonfinite, NamesTheRankThatMadeIt) {
  const std::vector<int> all = {0, 1, 2, 3, 4};
  EXPECT_EQ(
      message_of({{all}, {all, true}, {all}}, 2.5),
      "step 7: the gradient is not finite, first seen in unit 4; it came from rank 1's own micro-batches" +
          kFix);
  EXPECT_EQ(
      message_of({{all, true}}, 2.5),
      "step 7: the gradient is not finite, first seen in unit 4; it came from rank 0's own micro-batches" +
          kFix);
}

// Ranks that compute a micro-batch together all show a NaN, whichever of them made it, so the message names
// their group.
TEST(Nonfinite, NamesTheGroupThatComputesTogether) {
  const auto stage = [](int unit, std::vector<int> units) {
    Held held{std::move(units), true};
    held.local_unit = unit;
    return held;
  };
  EXPECT_EQ(message_of({stage(0, {0, 1, 2}), stage(2, {3, 4})}, 2.5, 2),
            "step 7: the gradient is not finite, first seen in unit 4; it came from the micro-batches of "
            "ranks 0, 1, "
            "which compute them together" +
                kFix);
  const Held sound{{0, 3}};
  EXPECT_EQ(
      message_of({stage(0, {0}), stage(0, {0}), sound, sound, stage(2, {3}), stage(2, {3}), sound, sound},
                 2.5, 2, 2),
      "step 7: the gradient is not finite, first seen in unit 3; it came from the micro-batches of ranks 0, "
      "1, "
      "4, 5, which compute them together" +
          kFix);
}

TEST(Nonfinite, NamesAllOfSeveralRanks) {
  EXPECT_EQ(
      message_of({{{0}}, {{0}, true}, {{0}, true}}, kNan),
      "step 7: the loss is not finite, first seen in unit 0; it came from the micro-batches of ranks 1, 2" +
          kFix);
}

TEST(Nonfinite, BackwardMeetsTheLastUnitFirst) {
  EXPECT_EQ(
      message_of({{{0, 1, 2}, true}, {{0, 1, 2}}}, 2.5),
      "step 7: the gradient is not finite, first seen in unit 2; it came from rank 0's own micro-batches" +
          kFix);
}

TEST(Nonfinite, ASliceOfOneRankIsEnough) {
  EXPECT_EQ(
      message_of({{{}}, {{3}}, {{1}, true}}, 2.5),
      "step 7: the gradient is not finite, first seen in unit 3; it came from rank 2's own micro-batches" +
          kFix);
}

TEST(Nonfinite, AnInfinityThatOnlyTheSumHas) {
  EXPECT_EQ(message_of({{{2}, false, kInf}, {{2}, false, kInf}}, 2.5),
            "step 7: the gradient is not finite, first seen in unit 2; no rank's last micro-batch "
            "shows it: an earlier one, or the sum, made it" +
                kFix);
}

TEST(Nonfinite, ALossWithoutABadGradient) {
  EXPECT_EQ(message_of({{}, {}}, kInf),
            "step 7: the loss is not finite; no rank's last micro-batch shows it: an earlier one, or the "
            "sum, made it" +
                kFix);
}

}  // namespace
}  // namespace sc
