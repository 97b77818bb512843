// Lessons 02-04 against lesson 00: the same parameters to the bit, the bytes and the operations that the
// plans say.
#include "common/comm/delaying_communicator.h"
#include "lessons/00_one_device/one_device.h"
#include "lessons/02_zero1/zero1.h"
#include "tests/support/harness.h"

namespace sc {
namespace {

using test::odd_workload;

test::RankResult reference(const Workload& w, int world, ReduceEvery every, std::int64_t steps) {
  return test::run_local<OneDevice>(1, w, {.virtual_ranks = world, .reduce_every = every}, steps).at(0);
}

void expect_equal_world(const std::vector<test::RankResult>& ranks, const test::RankResult& expected) {
  for (const test::RankResult& rank : ranks) {
    EXPECT_TRUE(test::bit_equal(rank, expected));
    EXPECT_EQ(rank.losses, expected.losses);
    EXPECT_EQ(rank.norms, expected.norms);
    EXPECT_EQ(rank.evaluation, ranks[0].evaluation);
    test::expect_as_planned(rank);
  }
}

std::unique_ptr<Communicator> delayed(std::unique_ptr<Communicator> comm) {
  static std::atomic<std::uint64_t> seed = 1;
  return std::make_unique<DelayingCommunicator>(std::move(comm), seed++);
}

/// Every activations setting with tied and untied heads, one and two rows a micro-batch.
template <class F>
void for_each_model(const F& f) {
  for (const Activations activations :
       {Activations::keep, Activations::recompute_gelu, Activations::recompute}) {
    for (const bool tied : {true, false}) {
      Workload w = odd_workload();
      w.activations = activations;
      w.model.tied = tied;
      w.batch.micro = tied ? 1 : 2;
      w.batch.global *= w.batch.micro;
      SCOPED_TRACE(std::to_string(static_cast<int>(activations)) + (tied ? " tied" : " untied"));
      f(w);
    }
  }
}

class ZeroWorlds : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Worlds, ZeroWorlds, ::testing::Values(1, 2, 3, 4));

TEST_P(ZeroWorlds, Zero1TwentySteps) {
  const Workload w = odd_workload();
  expect_equal_world(test::run_local<Zero1>(GetParam(), w, {}, 20),
                     reference(w, GetParam(), ReduceEvery::step, 20));
}

TEST_P(ZeroWorlds, Zero1EverySetting) {
  for_each_model([&](const Workload& w) {
    const test::RankResult expected = reference(w, GetParam(), ReduceEvery::step, 3);
    for (const bool overlap : {true, false})
      expect_equal_world(test::run_local<Zero1>(GetParam(), w, {.overlap = overlap}, 3), expected);
  });
}

TEST_P(ZeroWorlds, Zero1RandomDelays) {
  const Workload w = odd_workload();
  expect_equal_world(test::run_local<Zero1>(GetParam(), w, {}, 4, delayed),
                     reference(w, GetParam(), ReduceEvery::step, 4));
}

}  // namespace
}  // namespace sc
