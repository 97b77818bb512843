// Tests lesson 01 against lesson 00: the same parameters to the bit, and the bytes and operations of its
// plans.
#include "lessons/01_data_parallel/data_parallel.h"

#include <ATen/ops/equal.h>

#include "lessons/reference/reference_order.h"
#include "tests/support/harness.h"
#include "tests/support/pairwise.h"

namespace sc {
namespace {

using test::odd_workload;

test::RankResult replicas_reference(const Workload& w, int world, std::int64_t steps) {
  return test::run_local<ReferenceOrder>(1, w, {.virtual_ranks = world}, steps).at(0);
}

void expect_replicas_equal(const std::vector<test::RankResult>& ranks, const test::RankResult& expected) {
  for (const test::RankResult& rank : ranks)
    EXPECT_EQ(rank.state.size(), expected.state.size()) << "a replica is whole";
  test::expect_equals_reference(ranks, expected);
}

using By = BucketSize::By;
constexpr BucketSize kTensor{By::tensor}, kUnit{By::unit}, kModel{By::model};
constexpr BucketSize elements(std::int64_t n) { return {By::elements, n}; }

class DataParallelWorlds : public ::testing::TestWithParam<int> {};

// Twenty steps at every world size, with one setting each; the tests below take the other settings for fewer
// steps.
TEST_P(DataParallelWorlds, TwentyStepsBitEqualToOneDevice) {
  const Workload w = odd_workload();
  const test::RankResult expected = replicas_reference(w, GetParam(), 20);
  expect_replicas_equal(test::run_local<DataParallel>(GetParam(), w, {}, 20), expected);
}

TEST_P(DataParallelWorlds, EveryBucketOverlapAndActivationSetting) {
  test::Lot lot(GetParam() - 1, 4);
  test::for_each_model([&](const Workload& w) {
    const test::RankResult expected = replicas_reference(w, GetParam(), 3);
    for (const BucketSize bucket :
         {kTensor, kUnit, kModel, elements(97), elements(1000), elements(1'000'000)})
      for (const bool overlap : {true, false}) {
        if (!lot.draws()) continue;
        SCOPED_TRACE(std::to_string(static_cast<int>(bucket.by)) + " " + std::to_string(bucket.elements) +
                     (overlap ? " overlap" : " after"));
        expect_replicas_equal(
            test::run_local<DataParallel>(GetParam(), w,
                                          {.bucket = bucket, .overlap = overlap, .verify_replicas = 2}, 3),
            expected);
      }
  });
}

TEST_P(DataParallelWorlds, RandomDelaysChangeNothing) {
  const Workload w = odd_workload();
  const test::RankResult expected = replicas_reference(w, GetParam(), 4);
  for (const BucketSize bucket : {kTensor, kUnit, kModel})
    expect_replicas_equal(test::run_local<DataParallel>(GetParam(), w, {.bucket = bucket}, 4, test::delayed),
                          expected);
}

// Local sums 16-bit gradients in fp32, in rank order, and rounds once. Converting them to fp32 before and
// back after must give the same bits, with the bytes and the operations of another dtype.
TEST_P(DataParallelWorlds, SumsInFp32OfBf16Gradients) {
  Workload w = odd_workload();
  w.precision = {.dtype = DType::bf16, .grad_dtype = DType::bf16, .reduce_dtype = DType::bf16};
  Workload wide = w;
  wide.precision.reduce_dtype = DType::f32;
  const auto expected = test::run_local<DataParallel>(GetParam(), w, {}, 3);
  for (const BucketSize bucket : {kTensor, kUnit, kModel, elements(1000)})
    for (const bool overlap : {true, false}) {
      const auto ranks =
          test::run_local<DataParallel>(GetParam(), wide, {.bucket = bucket, .overlap = overlap}, 3);
      expect_replicas_equal(ranks, expected[0]);
      std::int64_t largest = 0;
      for (const auto& [op, count] : ranks[0].recorded[2].count) {
        if (op.dtype == DType::f64) continue;  // the four numbers of a step
        EXPECT_EQ(op.dtype, DType::f32);
        largest = std::max(largest, op.elements.value());
      }
      EXPECT_EQ(ranks[0].peak.at(Purpose::communication).value(), 4 * largest);
    }
}

INSTANTIATE_TEST_SUITE_P(Worlds, DataParallelWorlds, ::testing::Values(1, 2, 3, 4));

TEST(DataParallel, AccumulationSynchronisesOnce) {
  Workload w = odd_workload();
  for (const std::int64_t global : {2, 4, 12}) {  // 1, 2 and 6 micro-batches a rank
    w.batch.global = global;
    const auto ranks = test::run_local<DataParallel>(2, w, {}, 2);
    expect_replicas_equal(ranks, replicas_reference(w, 2, 2));
    EXPECT_TRUE(ranks[0].recorded[0] == ranks[1].recorded[0]);
    std::int64_t operations = 0;
    for (const auto& [op, count] : ranks[0].recorded[0].count) operations += count;
    EXPECT_EQ(operations, w.model.num_units() + 1)
        << "one all-reduce a unit and one of four numbers, whatever the accumulation";
  }
}

// Of the units with elements in `range`, the one that backward completes last: the one with the lowest
// number.
int last_complete(const ParamLayout& layout, Range range) {
  int unit = 0;
  while (range.begin >= layout.unit(unit).sharded_begin + layout.unit(unit).sharded_size) ++unit;
  return unit;
}

TEST(DataParallel, BucketsCoverTheArenaOnceAndLeaveWhenComplete) {
  const Workload w = odd_workload();
  const ParamLayout layout(w.model, WorldSize{3});
  for (const BucketSize bucket :
       {kUnit, kModel, elements(1), elements(777), elements(5000), elements(99'999'999)}) {
    SCOPED_TRACE(std::to_string(static_cast<int>(bucket.by)) + " " + std::to_string(bucket.elements));
    std::int64_t end = layout.arena_size().value();
    for (const Bucket& b : make_buckets(layout, bucket)) {
      EXPECT_EQ(b.range.end, end) << "buckets follow each other from the arena's end";
      EXPECT_GT(b.range.size(), 0);
      EXPECT_EQ(b.ready_after, last_complete(layout, b.range));
      const bool alone = b.ready_after == last_complete(layout, {b.range.end - 1, b.range.end});
      EXPECT_EQ(unit_of(layout, b), alone ? b.ready_after : kNoUnit) << "what tables and pages call its sum";
      end = b.range.begin;
    }
    EXPECT_EQ(end, 0);
  }
  std::int64_t tensors = 0, elements = 0;
  for (const Bucket& b : make_buckets(layout, kTensor)) {
    ++tensors;
    elements += b.range.size();
  }
  EXPECT_EQ(tensors, 2 + 12 * w.model.layers + 2);
  EXPECT_EQ(elements, layout.parameters().value() + (w.model.vocab_padded() - w.model.vocab) * w.model.width);
}

TEST(DataParallel, PlansABufferForSumsOnlyWhereTheyAreOfAnotherDtype) {
  Workload w = odd_workload();
  const auto bytes_to_convert = [&](const Workload& workload) {
    std::vector<std::int64_t> found;
    const MemoryPlan plan =
        DataParallelPlans().memory_plan(test::shape_for(workload, 2, 0, CommBackend::local));
    for (const Buffer& item : plan.items())
      if (item.purpose == Purpose::communication) found.push_back(item.bytes().value());
    return found;
  };
  EXPECT_TRUE(bytes_to_convert(w).empty()) << "not even a line of no bytes";
  w.precision = {.dtype = DType::bf16, .grad_dtype = DType::bf16, .reduce_dtype = DType::f32};
  const ParamLayout layout(w.model, WorldSize{2});
  std::int64_t largest = 0;
  for (int unit = 0; unit < layout.num_units(); ++unit)
    largest = std::max(largest, layout.unit(unit).sharded_size);
  EXPECT_EQ(bytes_to_convert(w), std::vector<std::int64_t>{4 * largest});
}

TEST(DataParallel, ComparesReplicasEveryFewSteps) {
  for (const std::int64_t every : {0, 1, 3})
    for (const test::RankResult& rank :
         test::run_local<DataParallel>(2, odd_workload(), {.bucket = {}, .verify_replicas = every}, 9))
      for (std::size_t step = 0; step < 9; ++step) {
        const bool due = every == 1 || (every == 3 && (step == 2 || step == 5 || step == 8));
        EXPECT_EQ(rank.checked[step].count.size(), due ? 1U : 0U) << every << ", step " << step;
      }
}

TEST(OneDevice, EveryReduceOrderHoldsWhatItSays) {
  for (const bool tied : {true, false})
    for (const std::int64_t virtual_ranks : {1, 2, 3, 4})
      for (const ReduceEvery every : {ReduceEvery::step, ReduceEvery::micro_batch})
        for (const TiedSum sum : {TiedSum::joint, TiedSum::split}) {
          Workload w = odd_workload();
          w.model.tied = tied;
          const auto result = test::run_local<ReferenceOrder>(1, w, {virtual_ranks, every, sum}, 3).at(0);
          test::expect_as_planned(result);
          const auto plain = test::run_local<ReferenceOrder>(1, w, {}, 3).at(0);
          EXPECT_NEAR(result.losses.back(), plain.losses.back(), 1e-5) << "orders differ in rounding only";
        }
}

// One rank sums over nothing; several virtual ones would add in the gradients' dtype, so the setting is
// refused.
TEST(OneDevice, SumsInFp32OfBf16Gradients) {
  Workload w = odd_workload();
  w.precision = {.dtype = DType::bf16, .grad_dtype = DType::bf16, .reduce_dtype = DType::bf16};
  Workload wide = w;
  wide.precision.reduce_dtype = DType::f32;
  EXPECT_TRUE(test::bit_equal(test::run_local<ReferenceOrder>(1, wide, {}, 2).at(0),
                              test::run_local<ReferenceOrder>(1, w, {}, 2).at(0)));
  EXPECT_THROW((void)test::run_local<ReferenceOrder>(1, wide, {.virtual_ranks = 2}, 1), InputError);
}

TEST(OneDevice, OrdersDifferInRoundingSoTheComparisonMeansSomething) {
  const Workload w = odd_workload();
  const auto step = test::run_local<ReferenceOrder>(1, w, {.virtual_ranks = 2}, 5).at(0);
  const auto micro =
      test::run_local<ReferenceOrder>(1, w, {.virtual_ranks = 2, .reduce_every = ReduceEvery::micro_batch}, 5)
          .at(0);
  const auto split =
      test::run_local<ReferenceOrder>(1, w, {.virtual_ranks = 2, .tied_sum = TiedSum::split}, 5).at(0);
  EXPECT_FALSE(test::bit_equal(step, micro));
  EXPECT_FALSE(test::bit_equal(step, split));
  EXPECT_FALSE(test::bit_equal(micro, split));
}

// Traces and pages draw what is marked.
TEST(DataParallel, MarksSayWhichUnitOfWhichMicroBatch) {
  const Workload w = odd_workload();
  std::string expected, found;
  const auto add = [&](Pass pass, int unit, int micro_batch) {
    expected += describe({pass, unit, micro_batch}) + "\n";
  };
  for (int m = 0; m < w.batch.global / 2; ++m) {
    for (int unit = 0; unit <= w.model.layers; ++unit) add(Pass::forward, unit, m);
    add(Pass::head, static_cast<int>(w.model.layers) + 1, m);
    for (int unit = static_cast<int>(w.model.layers); unit > 0; --unit)
      add(Pass::backward_input, unit, m), add(Pass::backward_weights, unit, m);
    add(Pass::embed_backward, 0, m);
  }
  add(Pass::norm, kNoUnit, -1);
  for (int unit = 0; unit <= w.model.layers + 1; ++unit) add(Pass::update, unit, -1);
  const std::vector<test::RankResult> ranks = test::run_local<DataParallel>(2, w, {}, 2);
  for (const Computed& one : ranks.at(1).computed) found += describe(one) + "\n";
  EXPECT_EQ(found, expected);
}

// A message about a gradient that is not finite looks there first. Of one row it is that of the row's
// positions.
TEST(DataParallel, TheLastLocalGradientIsThatOfTheFirstBlocksInput) {
  Workload w = odd_workload();
  w.batch.global = 1;
  test::Around around;
  around.between = [&](Strategy& strategy, auto&&...) {
    const std::vector<StateSlice> state = strategy.state();
    ASSERT_EQ(state.front().purpose, Purpose::workspace);
    EXPECT_EQ(state.front().unit, 0);
    const auto grads = std::ranges::find(state, Purpose::gradients, &StateSlice::purpose);
    const at::Tensor local = state.front().copy();
    const std::int64_t positions = strategy.layout().vocab_rows().size() * w.model.width;
    EXPECT_TRUE(at::equal(local, grads->copy().narrow(0, positions, local.numel())));
  };
  test::run_local<DataParallel>(1, w, {}, 1, {}, {}, around);
}

}  // namespace
}  // namespace sc
