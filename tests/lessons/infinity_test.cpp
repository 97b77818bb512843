// Tests lesson 06 against lesson 00 in lesson 04's order of sums: the same bits with states on a disk.
#include "lessons/06_infinity/infinity.h"

#include <spdlog/fmt/fmt.h>

#include "lessons/05_offload/offload.h"
#include "lessons/reference/reference_order.h"
#include "tests/lessons/offload_support.h"
#include "tests/storage/temp_dir.h"
#include "tests/support/answers.h"
#include "tests/support/harness.h"
#include "tests/support/pairwise.h"

namespace sc {
namespace {

using test::kOffloadSteps, test::offloaded_reference, test::offloaded_workload;

class InfinityTest : public ::testing::Test {
 protected:
  InfinityOptions options(std::int64_t piece, std::int64_t buffers = 3) const {
    InfinityOptions o;
    o.piece = piece, o.buffers = buffers, o.disk = dir_.path().string(), o.block = 4096;
    return o;
  }
  static void expect_equal(const test::RankResult& expected, int world, const Workload& w,
                           const InfinityOptions& o, const test::Wrap& wrap = {}) {
    SCOPED_TRACE(std::to_string(world) + " ranks, pieces of " + std::to_string(o.piece) + ", " +
                 std::to_string(o.buffers) + " buffers, " +
                 (o.parameters == ParametersOn::whole ? "whole" : "sharded") + ", gradients on the " +
                 (o.grads_at == GradsAt::device ? "device" : "host"));
    test::expect_equals_reference(test::run_local<Infinity>(world, w, o, kOffloadSteps, wrap), expected);
  }
  sc::test::TempDir dir_;
};

class InfinityWorlds : public InfinityTest, public ::testing::WithParamInterface<int> {};

TEST_P(InfinityWorlds, StatesOnTheDiskEndInTheSameBits) {
  const int world = GetParam();
  test::Lot lot(world - 1, 3);
  for (const std::int64_t micro : {1, 3}) {
    const Workload w = offloaded_workload(micro, world);
    const test::RankResult expected = offloaded_reference(w, world);
    for (const ParametersOn parameters : {ParametersOn::whole, ParametersOn::sharded})
      for (const GradsAt grads : {GradsAt::device, GradsAt::host})
        for (const std::int64_t buffers : {1, 2, 3, 5}) {
          InfinityOptions o = options(999, buffers);
          o.parameters = parameters, o.grads_at = grads;
          if (lot.draws()) expect_equal(expected, world, w, o);
        }
  }
}
INSTANTIATE_TEST_SUITE_P(Worlds, InfinityWorlds, ::testing::Values(1, 2, 3));

TEST_P(InfinityWorlds, ResidentUnitsEndInTheSameBits) {
  const int world = GetParam();
  test::Lot lot(world - 1, 3);
  for (const std::int64_t micro : {1, 3}) {
    Workload w = offloaded_workload(micro, world);
    w.optim.clip = micro == 1 ? 1e-3 : 0;
    const test::RankResult expected = offloaded_reference(w, world);
    for (const ParametersOn parameters : {ParametersOn::whole, ParametersOn::sharded})
      for (const GradsAt grads : {GradsAt::device, GradsAt::host})
        for (const std::int64_t resident : {1, 3, 4}) {
          InfinityOptions o = options(300, 2);
          o.parameters = parameters, o.grads_at = grads, o.resident = resident;
          if (lot.draws()) expect_equal(expected, world, w, o);
        }
  }
}

// This rank's slice of the parameters also lies on the host or on disk, and is fetched for every gather.
TEST_P(InfinityWorlds, ParametersElsewhereEndInTheSameBits) {
  const int world = GetParam();
  test::Lot lot(world - 1, 3);
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const std::int64_t micro : {1, 3}) {
      Workload w = offloaded_workload(micro, world);
      w.precision.dtype =
          dtype;  // gradients in fp32: three ranks' sum of 16-bit ones is rounded otherwise in lesson 00
      const test::RankResult expected = offloaded_reference(w, world);
      for (const std::int64_t prefetch : {0, 1, 5})
        for (const ParamsAt params : {ParamsAt::host, ParamsAt::disk})
          for (const std::int64_t buffers : {1, 3}) {
            InfinityOptions o = options(999, buffers);
            o.parameters = ParametersOn::sharded, o.params_at = params, o.prefetch = prefetch;
            o.grads_at = prefetch == 0 ? GradsAt::host : GradsAt::device;
            if (lot.draws()) expect_equal(expected, world, w, o);
            if (prefetch == 1 && lot.draws()) expect_equal(expected, world, w, o, test::delayed);
          }
    }
}

TEST_F(InfinityTest, PiecesEnginesAndWindowsChangeNoBit) {
  const Workload w = offloaded_workload(2, 2);
  const test::RankResult expected = offloaded_reference(w, 2);
  for (const std::int64_t piece : {333, 2000, 4'000'000})
    for (const std::int64_t buffers : {1, 4, 100}) expect_equal(expected, 2, w, options(piece, buffers));
  InfinityOptions o = options(500);
  o.engine = IoEngine::threads;
  expect_equal(expected, 2, w, o);
}

TEST_F(InfinityTest, SixteenBitsAndAClipThatAlwaysActs) {
  Workload w = offloaded_workload(2, 2);
  w.optim.clip = 1e-3;
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const DType grad : {DType::f32, dtype}) {
      w.precision = {.dtype = dtype, .grad_dtype = grad, .reduce_dtype = grad};
      const test::RankResult expected = offloaded_reference(w, 2);
      for (const GradsAt grads : {GradsAt::device, GradsAt::host}) {
        InfinityOptions o = options(700);
        o.grads_at = grads;
        expect_equal(expected, 2, w, o);
      }
    }
}

TEST_F(InfinityTest, EveryModelEndsInTheSameBits) {
  test::for_each_model(
      [&](const Workload& w) { expect_equal(offloaded_reference(w, 2), 2, w, options(700)); });
}

TEST_F(InfinityTest, DelaysChangeNothing) {
  const Workload w = offloaded_workload(2, 3);
  const test::RankResult expected = offloaded_reference(w, 3);
  for (int k = 0; k < 5; ++k) expect_equal(expected, 3, w, options(600), test::delayed);
}

// The result must be that of lesson 05's delayed updates, which offload_test compares with their direct
// computation.
TEST_F(InfinityTest, DelayedUpdatesAreLessonFives) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const std::int64_t micro : {1, 3}) {
      Workload w = offloaded_workload(micro, 2);
      w.precision = {.dtype = dtype, .grad_dtype = dtype, .reduce_dtype = dtype};
      OffloadOptions five;
      five.update = UpdateKind::delayed, five.warm_steps = 1;
      const std::vector<test::RankResult> expected = test::run_local<Offload>(2, w, five, 6);
      for (const std::int64_t buffers : {1, 3, 8})
        for (const ParamsAt params : {ParamsAt::device, ParamsAt::host, ParamsAt::disk}) {
          InfinityOptions o = options(900, buffers);
          o.update = UpdateKind::delayed, o.grads_at = GradsAt::host, o.warm_steps = 1;
          o.params_at = params;
          o.parameters = params == ParamsAt::device ? ParametersOn::whole : ParametersOn::sharded;
          SCOPED_TRACE(std::to_string(buffers) + " buffers, parameters at " +
                       std::to_string(static_cast<int>(params)));
          const auto wrap = buffers == 3 ? test::Wrap(test::delayed) : test::Wrap();
          const std::vector<test::RankResult> found = test::run_local<Infinity>(2, w, o, 6, wrap);
          test::expect_goes_on(found, expected);
          for (const test::RankResult& rank : found) EXPECT_EQ(rank.evaluation, expected[0].evaluation);
        }
    }
}

TEST_F(InfinityTest, SaysHowLongTheDiskTakes) {
  const RunShape shape = test::shape_for(offloaded_workload(2, 1), 1, 0, CommBackend::local);
  InfinityOptions o = options(500);
  EXPECT_EQ(InfinityPlans(o).predict(shape).find(" MB/s\n"), std::string::npos) << "no rate is known";
  o.disk_mbps = 0.01;
  Bytes bytes;
  for (const auto& [op, count] : InfinityPlans(o).comm_plan(shape).count)
    if (op.kind == CommKind::disk_read || op.kind == CommKind::disk_write)
      bytes += count * bytes_of(op.elements, op.dtype);
  EXPECT_GT(bytes, Bytes(0));
  const std::string said = InfinityPlans(o).predict(shape);
  const std::string wanted =
      fmt::format(": {:.2f} s at 0.01 MB/s\n", static_cast<double>(bytes.value()) / 1e4);
  EXPECT_NE(said.find(wanted), std::string::npos) << said << wanted;
}

// Host memory for states is the window alone, whatever the model's size.
TEST_F(InfinityTest, TheWindowIsAllThatTheHostHolds) {
  const auto bytes = [&](std::int64_t layers, Place place) {
    Workload w = offloaded_workload(2, 1);
    w.model.layers = layers;
    return InfinityPlans(options(500))
        .memory_plan(test::shape_for(w, 1, 0, CommBackend::local))
        .total(place)
        .value();
  };
  EXPECT_EQ(bytes(3, Place::host), bytes(30, Place::host));
  EXPECT_EQ(bytes(3, Place::pinned), bytes(30, Place::pinned));
  EXPECT_GT(bytes(30, Place::disk), 5 * bytes(3, Place::disk));
}

TEST_F(InfinityTest, RefusesWhatCannotBe) {
  struct Case {
    std::string said;
    UpdateKind update = UpdateKind::delayed;
    GradsAt grads = GradsAt::host;
    ParamsAt params = ParamsAt::device;
    ParametersOn parameters = ParametersOn::whole;
    std::int64_t resident = 0, block = 4096;
  };
  for (const Case& c : std::vector<Case>{
           {.said = "taken", .update = UpdateKind::exact, .grads = GradsAt::device},
           {.said = "64 update=delayed:...", .grads = GradsAt::device},
           {.said = "taken"},
           {.said = "64 params_at=host:...", .params = ParamsAt::host},  // whole parameters
           {.said = "taken", .params = ParamsAt::host, .parameters = ParametersOn::sharded},
           {.said = "taken", .params = ParamsAt::disk, .parameters = ParametersOn::sharded},
           {.said = "64 params_at=disk:...", .params = ParamsAt::disk},
           {.said = "64 resident:...",  // its parameters are elsewhere
            .update = UpdateKind::exact,
           .params = ParamsAt::disk,
           .parameters = ParametersOn::sharded,
           .resident = 1},
           {.said = "taken", .update = UpdateKind::exact, .parameters = ParametersOn::sharded, .resident = 1},
           {.said = "64 resident:...", .update = UpdateKind::exact, .resident = 5},  // all of them
           {.said = "64 block:...", .update = UpdateKind::exact, .block = 5000}}) {
    InfinityOptions o = options(500);
    o.update = c.update, o.grads_at = c.grads, o.params_at = c.params, o.parameters = c.parameters;
    o.resident = c.resident, o.block = c.block;
    EXPECT_EQ(test::as_far_as(test::refusal<InfinityPlans>(o, offloaded_workload(2, 1), 1), c.said), c.said);
  }
}

}  // namespace
}  // namespace sc
