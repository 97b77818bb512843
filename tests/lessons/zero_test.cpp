// Lessons 02-04 against lesson 00: the same parameters to the bit, the bytes and the operations that the
// plans say.
#include <ATen/ops/equal.h>

#include "common/run/fit.h"
#include "common/run/run_shape.h"
#include "lessons/00_one_device/one_device.h"
#include "lessons/01_data_parallel/data_parallel.h"
#include "lessons/02_zero1/zero1.h"
#include "lessons/03_zero2/zero2.h"
#include "lessons/04_zero3/zero3.h"
#include "tests/support/forwarding_communicator.h"
#include "tests/support/harness.h"

namespace sc {
namespace {

using test::delayed;
using test::for_each_model;
using test::odd_workload;

test::RankResult reference(const Workload& w, int world, ReduceEvery every, std::int64_t steps) {
  return test::run_local<OneDevice>(1, w, {.virtual_ranks = world, .reduce_every = every}, steps).at(0);
}

/// Elements of `purpose` that these results name.
std::int64_t named(std::span<const test::RankResult> ranks, Purpose purpose) {
  std::int64_t elements = 0;
  for (const test::RankResult& rank : ranks) {
    for (const StateSlice& slice : rank.state) elements += slice.purpose == purpose ? slice.range.size() : 0;
  }
  return elements;
}

/// Nothing of the optimizer's state is kept back, and nothing is held twice.
void expect_all_state_named(std::span<const test::RankResult> ranks, std::int64_t elements) {
  EXPECT_EQ(named(ranks, Purpose::momentum), elements);
  EXPECT_EQ(named(ranks, Purpose::variance), elements);
  EXPECT_GE(named(ranks, Purpose::parameters), elements);
}

void expect_equal_world(const std::vector<test::RankResult>& ranks, const test::RankResult& expected) {
  expect_all_state_named(ranks, named({&expected, 1}, Purpose::momentum));
  test::expect_equals_reference(ranks, expected);
}

/// Notes the elements of every sum over ranks, in the order in which they are asked for.
class SumsInOrder : public test::ForwardingCommunicator {
 public:
  SumsInOrder(std::unique_ptr<Communicator> inner, std::vector<std::int64_t>& sums)
      : ForwardingCommunicator(*inner), inner_(std::move(inner)), sums_(sums) {}
  Ticket all_reduce(at::Tensor& t) override {
    sums_.push_back(t.numel());
    return ForwardingCommunicator::all_reduce(t);
  }
  Ticket reduce_scatter(const at::Tensor& full, at::Tensor& shard) override {
    sums_.push_back(full.numel());
    return ForwardingCommunicator::reduce_scatter(full, shard);
  }

 private:
  std::unique_ptr<Communicator> inner_;
  std::vector<std::int64_t>& sums_;
};

/// Units in the order in which one rank sums their gradients, of one step on two ranks.
template <Strategy S>
std::vector<int> units_summed(const Workload& w) {
  std::array<std::vector<std::int64_t>, 2> sums;
  test::run_local<S>(2, w, {}, 1, [&](std::unique_ptr<Communicator> comm) -> std::unique_ptr<Communicator> {
    std::vector<std::int64_t>& mine = sums[static_cast<std::size_t>(to_int(comm->rank()))];
    return std::make_unique<SumsInOrder>(std::move(comm), mine);
  });
  const ParamLayout layout(w.model, WorldSize{2});
  std::vector<int> units;
  int block = layout.num_blocks();  // they have as many elements each: the last one comes first
  for (const std::int64_t n : sums[0]) {
    if (n == layout.unit(0).sharded_size) units.push_back(0);
    if (n == layout.unit(1).sharded_size) units.push_back(block--);
    if (n == layout.unit(layout.last_unit()).sharded_size) units.push_back(layout.last_unit());
  }
  return units;
}

// The largest message travels while block 1's weight products are computed: it is not the last.
TEST(Zero, UnitZeroIsSummedBeforeBlockOne) {
  Workload w = odd_workload();
  w.batch.global = 2 * w.batch.micro;  // one micro-batch a rank
  const std::vector<int> expected = {4, 3, 2, 0, 1};
  EXPECT_EQ(units_summed<DataParallel>(w), expected);
  EXPECT_EQ(units_summed<Zero1>(w), expected);
  EXPECT_EQ(units_summed<Zero2>(w), expected);
  EXPECT_EQ(units_summed<Zero3>(w), expected);
}

/// Hands out windows, and sees which gathers are between two of them.
class Windows : public test::ForwardingCommunicator {
 public:
  struct Seen {
    std::int64_t bytes = 0, others = 0;
    std::vector<std::pair<std::size_t, std::int64_t>> places;  // of `full`: which window, where in it
  };
  Windows(std::unique_ptr<Communicator> inner, Seen& seen)
      : ForwardingCommunicator(*inner), inner_(std::move(inner)), seen_(seen) {}
  std::shared_ptr<void> window(Bytes bytes) override {
    windows_.push_back(at::empty({bytes.value()}, at::kByte));
    seen_.bytes += bytes.value();
    return {std::make_shared<at::Tensor>(windows_.back()), windows_.back().mutable_data_ptr()};
  }
  Ticket all_gather(const at::Tensor& shard, at::Tensor& full) override {
    const auto place = place_of(full);
    if (place && place_of(shard)) {
      seen_.places.push_back(*place);
    } else {
      ++seen_.others;
    }
    return ForwardingCommunicator::all_gather(shard, full);
  }

 private:
  [[nodiscard]] std::optional<std::pair<std::size_t, std::int64_t>> place_of(const at::Tensor& t) const {
    const auto* begin = static_cast<const std::byte*>(t.const_data_ptr());
    for (std::size_t k = 0; k < windows_.size(); ++k) {
      const auto* data = static_cast<const std::byte*>(windows_[k].const_data_ptr());
      if (begin >= data && begin + t.nbytes() <= data + windows_[k].nbytes())
        return std::pair(k, begin - data);
    }
    return std::nullopt;
  }

  std::unique_ptr<Communicator> inner_;
  Seen& seen_;
  std::vector<at::Tensor> windows_;
};

/// What two ranks of a strategy gather between windows: all that is planned for gathers lies there, and gathered data
/// lies at the same place on both. Their parameters are the reference's as ever.
template <Strategy S, class Options>
void expect_gathers_between_windows(const Options& options, ReduceEvery every, bool others) {
  const Workload w = odd_workload();
  std::array<Windows::Seen, 2> seen;
  const std::vector<test::RankResult> ranks = test::run_local<S>(
      2, w, options, 3, [&](std::unique_ptr<Communicator> comm) -> std::unique_ptr<Communicator> {
        Windows::Seen& mine = seen[static_cast<std::size_t>(to_int(comm->rank()))];
        return std::make_unique<Windows>(std::move(comm), mine);
      });
  std::int64_t planned = 0;
  for (const MemoryPlan::Item& item : ranks[0].memory_plan.items())
    if (item.name.rfind("params_", 0) == 0 && item.name != "params_whole") planned += item.bytes.value();
  for (const Windows::Seen& of : seen) {
    EXPECT_EQ(of.bytes, planned);
    EXPECT_FALSE(of.places.empty());
    EXPECT_EQ(of.places, seen[0].places);
    EXPECT_EQ(of.others > 0, others) << of.others;
  }
  if (!others) expect_equal_world(ranks, reference(w, 2, every, 3));
}

// Tensors that stay whole are published by other gathers.
TEST(Zero, GathersBetweenWindows) {
  expect_gathers_between_windows<Zero1>(Zero1::Options{}, ReduceEvery::step, false);
  expect_gathers_between_windows<Zero2>(Zero2::Options{}, ReduceEvery::micro_batch, false);
  expect_gathers_between_windows<Zero3>(Zero3::Options{}, ReduceEvery::micro_batch, false);
  expect_gathers_between_windows<Zero3>(Zero3::Options{.persist_below = 100}, ReduceEvery::micro_batch, true);
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

TEST_P(ZeroWorlds, Zero2TwentySteps) {
  const Workload w = odd_workload();
  expect_equal_world(test::run_local<Zero2>(GetParam(), w, {}, 20),
                     reference(w, GetParam(), ReduceEvery::micro_batch, 20));
}

// Buckets smaller than a slice's alignment, than a unit, of several units, and larger than the model.
TEST_P(ZeroWorlds, Zero2EverySetting) {
  for_each_model([&](const Workload& w) {
    const test::RankResult step = reference(w, GetParam(), ReduceEvery::step, 3);
    const test::RankResult micro = reference(w, GetParam(), ReduceEvery::micro_batch, 3);
    for (const bool overlap : {true, false}) {
      expect_equal_world(
          test::run_local<Zero2>(GetParam(), w, {.accumulate = Accumulate::full, .overlap = overlap}, 3),
          step);
      for (const std::int64_t bucket : {0, 1, 1000, 7000, 1'000'000}) {
        SCOPED_TRACE(bucket);
        expect_equal_world(test::run_local<Zero2>(GetParam(), w, {.bucket = bucket, .overlap = overlap}, 3),
                           micro);
      }
    }
  });
}

TEST_P(ZeroWorlds, Zero2RandomDelays) {
  const Workload w = odd_workload();
  for (const std::int64_t bucket : {0, 3000}) {
    expect_equal_world(test::run_local<Zero2>(GetParam(), w, {.bucket = bucket}, 4, delayed),
                       reference(w, GetParam(), ReduceEvery::micro_batch, 4));
  }
}

// One micro-batch a rank: no scratch beside the slice.
TEST(Zero2, OneMicroBatchNeedsNoScratch) {
  Workload w = odd_workload();
  w.batch.global = 2;
  const auto ranks = test::run_local<Zero2>(2, w, {}, 3);
  expect_equal_world(ranks, reference(w, 2, ReduceEvery::micro_batch, 3));
  w.batch.global = 4;
  const auto more = test::run_local<Zero2>(2, w, {}, 3);
  const auto gradients = [](const test::RankResult& rank) {
    return rank.peak[static_cast<int>(Purpose::gradients)];
  };
  EXPECT_LT(gradients(ranks[0]), gradients(more[0]));
}

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
  EXPECT_LT(Zero2::memory_plan(shape, {}).total(), Zero1::memory_plan(shape, {}).total());
  EXPECT_GT(Zero2::memory_plan(shape, {.bucket = 1'000'000}).total(), Zero1::memory_plan(shape, {}).total());
  EXPECT_THROW((void)Zero2::memory_plan(shape, {.accumulate = Accumulate::full, .bucket = 1}), InputError);
}

// A model of one block has no even block, and without a bucket nothing travels out of one: what is not
// there is no line of the plan.
TEST(Zero2, APlanHasNoEmptyLine) {
  Workload w = odd_workload();
  w.model.layers = 1;
  const RunShape shape = test::shape_for(w, 2, 0, CommBackend::local);
  for (const Zero2Options& options : {Zero2Options{}, {.accumulate = Accumulate::full}, {.bucket = 5000}}) {
    const MemoryPlan plan = Zero2::memory_plan(shape, options);  // which the loop's range does not keep
    for (const MemoryPlan::Item& item : plan.items()) EXPECT_GT(item.bytes.value(), 0) << item.name;
  }
}

// Nothing is whole unless persist_below says so.
TEST(Zero3, APlanHasNoEmptyLine) {
  const RunShape shape = test::shape_for(odd_workload(), 2, 0, CommBackend::local);
  for (const std::int64_t persist_below : {0, 100, 1 << 30}) {
    const MemoryPlan plan = Zero3::memory_plan(shape, {.persist_below = persist_below});
    for (const MemoryPlan::Item& item : plan.items()) {
      EXPECT_GT(item.bytes.value(), 0) << item.name;
      if (item.name != "params_shard") continue;
      EXPECT_EQ(item.formula, persist_below == 0 ? "4 P/N" : "4 (P - W)/N");
    }
  }
}

TEST_P(ZeroWorlds, Zero3TwentySteps) {
  const Workload w = odd_workload();
  expect_equal_world(test::run_local<Zero3>(GetParam(), w, {}, 20),
                     reference(w, GetParam(), ReduceEvery::micro_batch, 20));
}

TEST_P(ZeroWorlds, Zero3EverySetting) {
  for_each_model([&](const Workload& w) {
    const test::RankResult expected = reference(w, GetParam(), ReduceEvery::micro_batch, 3);
    for (const std::int64_t prefetch : {0, 1, 2, 5}) {
      for (const bool reshard : {true, false}) {
        SCOPED_TRACE(prefetch);
        expect_equal_world(test::run_local<Zero3>(
                               GetParam(), w, {.prefetch = prefetch, .reshard_after_forward = reshard}, 3),
                           expected);
      }
    }
  });
}

TEST_P(ZeroWorlds, Zero3RandomDelays) {
  const Workload w = odd_workload();
  for (const std::int64_t prefetch : {0, 2}) {
    expect_equal_world(test::run_local<Zero3>(GetParam(), w, {.prefetch = prefetch}, 4, delayed),
                       reference(w, GetParam(), ReduceEvery::micro_batch, 4));
  }
}

// An evaluation takes part in nothing: what it published, gathered or left in a buffer is not what the next
// step computes with.
template <Strategy S>
void expect_evaluation_between_changes_nothing(int world, ReduceEvery every) {
  const Workload w = odd_workload();
  const test::RankResult expected = test::run_local<OneDevice>(
      1, w, {.virtual_ranks = world, .reduce_every = every}, 4, {}, /*evaluate_after=*/1)[0];
  const auto ranks = test::run_local<S>(world, w, {}, 4, delayed, /*evaluate_after=*/1);
  expect_equal_world(ranks, expected);
  for (const test::RankResult& rank : ranks)
    EXPECT_DOUBLE_EQ(rank.evaluation_between, expected.evaluation_between);
  EXPECT_NE(expected.evaluation_between, expected.evaluation);
}

TEST_P(ZeroWorlds, Zero1EvaluationBetweenSteps) {
  expect_evaluation_between_changes_nothing<Zero1>(GetParam(), ReduceEvery::step);
}

TEST_P(ZeroWorlds, Zero2EvaluationBetweenSteps) {
  expect_evaluation_between_changes_nothing<Zero2>(GetParam(), ReduceEvery::micro_batch);
}

TEST_P(ZeroWorlds, Zero3EvaluationBetweenSteps) {
  expect_evaluation_between_changes_nothing<Zero3>(GetParam(), ReduceEvery::micro_batch);
}

template <Strategy S>
Bytes held(const RunShape& shape) {
  MemoryPlan plan = S::memory_plan(shape, {});
  detail::plan_surroundings(shape, to_int(shape.world), plan);
  return plan.total();
}

// What --memory-cap says of other lessons is computed without them.
TEST_P(ZeroWorlds, PlansOfStagesAreTheLessons) {
  for (const int layers : {1, 2, 5}) {
    for_each_model([&](Workload w) {
      w.model.layers = layers;
      for (const DType dtype : {DType::f32, DType::bf16}) {
        w.precision.dtype = w.precision.grad_dtype = w.precision.reduce_dtype = dtype;
        for (const int global : {GetParam(), 12}) {
          w.batch.global = global * w.batch.micro;
          const RunShape shape = test::shape_for(w, GetParam(), 0, CommBackend::mpi);
          EXPECT_EQ(plan_of_stage(shape, ZeroStage::optimizer).total(), held<Zero1>(shape));
          EXPECT_EQ(plan_of_stage(shape, ZeroStage::gradients).total(), held<Zero2>(shape));
          EXPECT_EQ(plan_of_stage(shape, ZeroStage::parameters).total(), held<Zero3>(shape));
        }
      }
    });
  }
}

// Bytes of the model states alone are the paper's.
TEST_P(ZeroWorlds, ModelStatesAreThePapersFormulas) {
  Workload w = odd_workload();
  w.precision.dtype = w.precision.grad_dtype = w.precision.reduce_dtype = DType::bf16;
  const RunShape shape = test::shape_for(w, GetParam(), 0, CommBackend::mpi);
  const Elements psi = ParamLayout(w.model, shape.world).arena_size();
  const auto states = [&](const MemoryPlan& plan, ZeroStage stage) {
    Bytes sum;
    for (const MemoryPlan::Item& item : plan.items()) {
      const bool shard = item.name.ends_with("_shard");
      const bool full = (item.name == "params_full" && stage < ZeroStage::parameters) ||
                        (item.name == "grads_full" && stage < ZeroStage::gradients);
      if (shard || full) sum += item.bytes;
    }
    EXPECT_EQ(sum, model_states(psi, shape.world, stage, w.precision)) << static_cast<int>(stage);
  };
  states(Zero1::memory_plan(shape, {}), ZeroStage::optimizer);
  states(Zero2::memory_plan(shape, {}), ZeroStage::gradients);
  states(Zero3::memory_plan(shape, {}), ZeroStage::parameters);
}

/// The same values of every named tensor, where persist_below has moved tensors between segments.
void expect_named_tensors_equal(const test::RankResult& rank, const ParamLayout& layout,
                                const test::RankResult& expected, const ParamLayout& plain) {
  std::int64_t compared = 0;
  for (const StateSlice& slice : rank.state) {
    for (const ParamTensor& t : layout.unit(slice.unit).tensors) {
      const Range shared{std::max(slice.range.begin, t.offset),
                         std::min(slice.range.end, t.offset + t.numel())};
      if (t.segment != slice.segment || shared.size() <= 0) continue;
      for (const StateSlice& whole : expected.state) {
        if (whole.purpose != slice.purpose || whole.unit != slice.unit) continue;
        const std::int64_t from = plain.find(slice.unit, t.name)->offset + shared.begin - t.offset;
        EXPECT_TRUE(at::equal(slice.values.narrow(0, shared.begin - slice.range.begin, shared.size()),
                              whole.values.narrow(0, from, shared.size())))
            << name_of(slice.purpose) << " " << t.name;
        compared += shared.size();
      }
    }
  }
  EXPECT_GT(compared, 0);
}

/// What computes is what was stepped, rounded.
void expect_parameters_are_the_master_rounded(const test::RankResult& rank) {
  std::int64_t masters = 0;
  for (const StateSlice& master : rank.state) {
    if (master.purpose != Purpose::master) continue;
    ++masters;
    for (const StateSlice& params : rank.state) {
      if (params.purpose != Purpose::parameters || params.unit != master.unit ||
          params.segment != master.segment)
        continue;
      EXPECT_TRUE(
          at::equal(params.values.narrow(0, master.range.begin - params.range.begin, master.range.size()),
                    master.values.to(at::kBFloat16)))
          << "unit " << master.unit;
    }
  }
  EXPECT_GT(masters, 0);
}

// 16 bits beside an fp32 master, against lesson 01: both round a sum over ranks once. (00 adds rank by rank
// in the gradients' dtype.) One micro-batch a rank, so that the orders of 01 and of a reduction every time
// are one.
TEST_P(ZeroWorlds, SixteenBitsBesideAMaster) {
  Workload w = odd_workload();
  w.precision = {.dtype = DType::bf16, .grad_dtype = DType::bf16, .reduce_dtype = DType::bf16};
  w.batch.global = GetParam();
  const auto expected = test::run_local<DataParallel>(GetParam(), w, {}, 4).at(0);
  expect_parameters_are_the_master_rounded(expected);
  for (const auto& ranks :
       {test::run_local<Zero1>(GetParam(), w, {}, 4), test::run_local<Zero2>(GetParam(), w, {}, 4),
        test::run_local<Zero3>(GetParam(), w, {}, 4)}) {
    expect_equal_world(ranks, expected);
    for (const test::RankResult& rank : ranks) expect_parameters_are_the_master_rounded(rank);
  }
}

TEST_P(ZeroWorlds, Zero3PersistBelow) {
  for (const bool tied : {true, false}) {
    Workload w = odd_workload();
    w.model.tied = tied;
    const test::RankResult expected = reference(w, GetParam(), ReduceEvery::micro_batch, 4);
    const WorldSize world{GetParam()};
    for (const std::int64_t below : {21, 500, 100'000}) {  // vectors of a width; matrices too; everything
      SCOPED_TRACE(below);
      const auto ranks = test::run_local<Zero3>(GetParam(), w, {.persist_below = below}, 4);
      expect_all_state_named(ranks, ParamLayout(w.model, world, below).arena_size().value());
      for (const auto& rank : ranks) {
        EXPECT_EQ(rank.losses, expected.losses);
        EXPECT_EQ(rank.norms, expected.norms);
        test::expect_as_planned(rank);
        expect_named_tensors_equal(rank, ParamLayout(w.model, world, below), expected,
                                   ParamLayout(w.model, world));
      }
    }
  }
}

}  // namespace
}  // namespace sc
