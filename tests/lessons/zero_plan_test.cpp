// Tests what lessons 02 to 04 say before they run: plans without ranks, for worlds that no test can start,
// and the ZeRO paper's bytes.
#include "lessons/01_data_parallel/data_parallel.h"
#include "lessons/02_zero1/zero1.h"
#include "lessons/03_zero2/zero2.h"
#include "lessons/04_zero3/zero3.h"
#include "lessons/plans.h"
#include "lessons/reference/reference_order.h"
#include "tests/support/harness.h"
#include "tests/support/model_states.h"

namespace sc {
namespace {

using test::for_each_model, test::odd_workload;

TEST(Zero2, ShardBucketsCoverTheSlicesOnceAndLeaveWhenComplete) {
  const ParamLayout layout(odd_workload().model, WorldSize{3});
  for (const std::int64_t bucket : {1, 1000, 7000, 1'000'000}) {
    std::int64_t end = layout.arena_size().value() / 3;
    for (const ShardBucket& b : make_shard_buckets(layout, bucket)) {
      EXPECT_EQ(b.range.end, end);
      EXPECT_GT(b.range.size(), 0);
      EXPECT_GE(b.range.begin, layout.unit(b.ready_after).sharded_begin / 3)
          << "nothing of an unfinished unit";
      if (b.ready_after < layout.last_unit()) {
        EXPECT_LT(b.range.begin, layout.unit(b.ready_after + 1).sharded_begin / 3)
            << "it could have left earlier";
      }
      const UnitLayout& first = layout.unit(b.ready_after);
      EXPECT_EQ(unit_of(layout, b),
                3 * b.range.end <= first.sharded_begin + first.sharded_size ? b.ready_after : kNoUnit);
      end = b.range.begin;
    }
    EXPECT_EQ(end, 0);
  }
}

// A bucket that holds everything makes ZeRO-2 hold more than ZeRO-1.
TEST(Zero2, ABucketAsLargeAsTheModelCostsMoreThanZero1) {
  Workload w = odd_workload();
  w.model.layers = 12;
  const RunShape shape = test::shape_for(w, 2, 0, CommBackend::local);
  EXPECT_LT(Zero2Plans().memory_plan(shape).total(), Zero1Plans().memory_plan(shape).total());
  EXPECT_GT(Zero2Plans({.bucket = 1'000'000}).memory_plan(shape).total(),
            Zero1Plans().memory_plan(shape).total());
}

// A later micro-batch's sum arrives beside what the earlier ones left; a step's only one needs no such place.
TEST(Zero3, ScratchIsForSeveralMicroBatches) {
  for (const std::int64_t micro_batches : {1, 2}) {
    Workload w = odd_workload();
    w.batch.global = 2 * micro_batches * w.batch.micro;
    const MemoryPlan plan = Zero3Plans().memory_plan(test::shape_for(w, 2, 0, CommBackend::local));
    const auto scratch = [](const Buffer& item) { return item.name.starts_with("grads_scratch"); };
    EXPECT_EQ(std::ranges::any_of(plan.items(), scratch), micro_batches == 2);
  }
}

// Blocks use two gradient buffers in turns ("even blocks", "odd blocks"): a model of one block needs only one
// of them, and without a bucket nothing is copied into a bucket. The plan has no line for what is not there.
TEST(Zero2, APlanHasNoEmptyLine) {
  Workload w = odd_workload();
  w.model.layers = 1;
  const RunShape shape = test::shape_for(w, 2, 0, CommBackend::local);
  for (const Zero2Options& options : {Zero2Options{}, {.bucket = 5000}}) {
    const MemoryPlan plan = Zero2Plans(options).memory_plan(shape);  // which the loop's range does not keep
    for (const Buffer& item : plan.items()) EXPECT_GT(item.bytes().value(), 0) << item.name;
  }
}

// Without persist_below nothing is whole, so the plan has no line for it.
TEST(Zero3, APlanHasNoEmptyLine) {
  const RunShape shape = test::shape_for(odd_workload(), 2, 0, CommBackend::local);
  for (const std::int64_t persist_below : {0, 100, 1 << 30}) {
    const MemoryPlan plan = Zero3Plans({.persist_below = persist_below}).memory_plan(shape);
    for (const Buffer& item : plan.items()) {
      EXPECT_GT(item.bytes().value(), 0) << item.name;
      if (item.name != "params_shard") continue;
      EXPECT_EQ(item.formula(), persist_below == 0 ? "4 P/N" : "4 (P - W)/N");
    }
  }
}

/// Tests by world size: the worlds of the other suites, and larger ones.
class ZeroPlans : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Worlds, ZeroPlans, ::testing::Values(1, 2, 3, 4, 64, 1024));

/// The odd model, and GPT-2's four sizes as configs/ has them.
std::vector<GptConfig> models() {
  const auto gpt2 = [](int layers, int heads, int width) {
    return GptConfig{
        .layers = layers, .heads = heads, .width = width, .context = 1024, .vocab = 50257, .tied = true};
  };
  return {odd_workload().model, gpt2(12, 12, 768), gpt2(24, 16, 1024), gpt2(36, 20, 1280),
          gpt2(48, 25, 1600)};
}

Workload sixteen_bits(Workload w) {
  w.precision.dtype = w.precision.grad_dtype = w.precision.reduce_dtype = DType::bf16;
  return w;
}

// The plan that --memory-cap advises is the lesson's own.
TEST_P(ZeroPlans, TheTableHasTheLessonsOwn) {
  const RunShape shape = test::shape_for(odd_workload(), GetParam(), 0, CommBackend::mpi);
  const std::vector<StrategyPlans> table = lesson_plans();
  ASSERT_GE(table.size(), 5U);
  EXPECT_EQ(table[0].plans->memory_plan(shape).total(), ReferenceOrderPlans().memory_plan(shape).total());
  EXPECT_EQ(table[1].plans->memory_plan(shape).total(), DataParallelPlans().memory_plan(shape).total());
  EXPECT_EQ(table[2].plans->comm_plan(shape), Zero1Plans().comm_plan(shape));
  EXPECT_EQ(table[3].plans->comm_plan(shape), Zero2Plans().comm_plan(shape));
  EXPECT_EQ(table[4].plans->comm_plan(shape), Zero3Plans().comm_plan(shape));
}

/// The bytes of model states in a plan: neither units that are temporarily full, nor scratch, nor
/// activations.
Bytes model_states_in(const MemoryPlan& plan) {
  Bytes sum;
  for (const Buffer& item : plan.items())
    if (item.name.ends_with("_shard") || item.name == "params_full" || item.name == "grads_full" ||
        item.name == "master_full" || item.name == "momentum_full" || item.name == "variance_full")
      sum += item.bytes();
  return sum;
}

// The bytes of model states alone are the paper's, whose own example tests/memory/model_states_test.cpp has.
TEST_P(ZeroPlans, ModelStatesAreThePapersFormulas) {
  for (const GptConfig& model : models()) {
    Workload w = sixteen_bits(odd_workload());
    w.model = model;
    w.batch.global = 2 * GetParam();
    for (const DType gradients : {DType::bf16, DType::f32}) {
      w.precision.grad_dtype = w.precision.reduce_dtype = gradients;
      const RunShape shape = test::shape_for(w, GetParam(), 0, CommBackend::mpi);
      const Elements psi = ParamLayout(w.model, shape.mesh.world()).arena_size();
      const MemoryPlan plans[] = {DataParallelPlans().memory_plan(shape), Zero1Plans().memory_plan(shape),
                                  Zero2Plans().memory_plan(shape), Zero3Plans().memory_plan(shape)};
      for (const ZeroStage stage :
           {ZeroStage::none, ZeroStage::optimizer, ZeroStage::gradients, ZeroStage::parameters})
        EXPECT_EQ(model_states_in(plans[static_cast<int>(stage)]),
                  model_states(psi, shape.mesh.world(), stage, w.precision));
    }
  }
}

}  // namespace
}  // namespace sc
