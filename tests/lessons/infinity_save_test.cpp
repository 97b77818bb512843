// Tests lesson 06 saved and evaluated between its steps, and resumed: it ends with the bits of an undisturbed
// run. A save borrows a buffer of the window, into which the coming update's states have been read already.
#include "common/watch/deadline.h"
#include "lessons/05_offload/offload.h"
#include "lessons/06_infinity/infinity.h"
#include "lessons/reference/reference_order.h"
#include "tests/storage/temp_dir.h"
#include "tests/support/pairwise.h"
#include "tests/support/saving.h"
#include "tests/support/shuffling_block_io.h"

namespace sc {
namespace {

using namespace std::chrono_literals;
using Order = ShufflingBlockIo::Order;

constexpr int kSavedWorld = 2;
constexpr std::int64_t kSavedSteps = 5;

/// Where the states lie, and when they are updated.
struct SavedSetting {
  GradsAt grads;
  ParamsAt params;
  UpdateKind update = UpdateKind::exact;
};
constexpr SavedSetting kSettings[] = {
    {GradsAt::device, ParamsAt::device},
    {GradsAt::host, ParamsAt::device},
    {GradsAt::device, ParamsAt::host},
    {GradsAt::host, ParamsAt::host},
    {GradsAt::device, ParamsAt::disk},
    {GradsAt::host, ParamsAt::disk},
    {GradsAt::host, ParamsAt::device, UpdateKind::delayed},
    {GradsAt::host, ParamsAt::host, UpdateKind::delayed},
    {GradsAt::host, ParamsAt::disk, UpdateKind::delayed},
};

Workload saved_workload(DType dtype) {
  Workload w = test::odd_workload();
  w.model.layers = 2;
  w.batch.global = 2 * kSavedWorld;
  w.precision.dtype = dtype;
  return w;
}

/// Tests by the number of buffers and the dtype of the weights.
class InfinitySaves : public ::testing::TestWithParam<std::tuple<std::int64_t, DType>> {
 protected:
  static Workload workload() { return saved_workload(std::get<DType>(GetParam())); }
  [[nodiscard]] InfinityOptions options(const SavedSetting& s) const {
    InfinityOptions o;
    o.piece = 800, o.buffers = std::get<std::int64_t>(GetParam()), o.block = 4096,
    o.disk = dir_.path().string();
    o.grads_at = s.grads, o.params_at = s.params, o.update = s.update, o.warm_steps = 1;
    if (s.params != ParamsAt::device) o.parameters = ParametersOn::sharded;
    return o;
  }
  static InfinityOptions with(InfinityOptions o, Order order) {
    o.wrap = [order](auto io) { return std::make_unique<ShufflingBlockIo>(std::move(io), order, 11); };
    return o;
  }
  /// Calls f(setting, workload, the result of an undisturbed run: on every rank, or on one that holds
  /// everything).
  template <class F>
  static void for_each_setting(const F& f) {
    const Workload w = workload();
    const std::vector<test::RankResult> exact = test::run_local<ReferenceOrder>(
        1, w, {.virtual_ranks = kSavedWorld, .reduce_every = ReduceEvery::micro_batch}, kSavedSteps);
    OffloadOptions five;
    five.update = UpdateKind::delayed, five.warm_steps = 1;
    const std::vector<test::RankResult> late = test::run_local<Offload>(kSavedWorld, w, five, kSavedSteps);
    test::Lot lot(std::get<std::int64_t>(GetParam()) - 1, 3);
    for (const SavedSetting& s : kSettings) {
      if (!lot.draws()) continue;
      SCOPED_TRACE(std::string("gradients on the ") + (s.grads == GradsAt::device ? "device" : "host") +
                   ", parameters at " + std::to_string(static_cast<int>(s.params)) +
                   (s.update == UpdateKind::delayed ? ", delayed" : ""));
      f(s, w, s.update == UpdateKind::exact ? exact : late);
    }
  }
  const Deadline deadline_{60s, "a save left a rank behind"};
  sc::test::TempDir dir_;
};

// If a save borrows a buffer into which the window has read ahead, the window reads again; over all settings
// this happens to each of the last pieces.
TEST_P(InfinitySaves, ChangeNothing) {
  const ParamLayout layout(workload().model, WorldSize{kSavedWorld});
  for (int rank = 0; rank < kSavedWorld; ++rank) {
    const std::size_t pieces = cut_pieces(layout, Rank{rank}, options({}).piece).size();
    ASSERT_TRUE(pieces % 2 != 0 && pieces % 3 != 0) << pieces << ": the same buffers in every step";
  }
  for_each_setting([&](const SavedSetting& s, const Workload& w,
                       const std::vector<test::RankResult>& expected) {
    for (const auto& [save, evaluate] : {std::pair(1, 0), std::pair(2, 1)}) {
      SCOPED_TRACE("saved every " + std::to_string(save) + ", evaluated every " + std::to_string(evaluate));
      const sc::test::TempDir saves;
      test::expect_goes_on(
          test::run_part<Infinity>(
              kSavedWorld, w, options(s),
              {.last = kSavedSteps, .save_every = save, .dir = saves.path(), .evaluate_every = evaluate}),
          expected);
    }
  });
}

TEST_P(InfinitySaves, AreGoneOnFrom) {
  for_each_setting([&](const SavedSetting& s, const Workload& w,
                       const std::vector<test::RankResult>& expected) {
    const sc::test::TempDir saves;
    test::run_part<Infinity>(kSavedWorld, w, options(s), {.last = 3, .save_every = 1, .dir = saves.path()});
    for (const std::int64_t done : {1, 3}) {
      SCOPED_TRACE("resumed after " + std::to_string(done));
      test::expect_goes_on(
          test::run_part<Infinity>(
              kSavedWorld, w, options(s),
              {.first = done, .last = kSavedSteps, .from = test::saved_after(done, saves.path())}),
          expected);
    }
  });
}

// Those of lesson 05, too; a checkpoint says what it puts off.
TEST(OffloadSaves, AreGoneOnFrom) {
  for (const UpdateKind update : {UpdateKind::exact, UpdateKind::delayed})
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const Workload w = saved_workload(dtype);
      OffloadOptions five;
      five.update = update, five.warm_steps = 1;
      const std::vector<test::RankResult> expected =
          test::run_local<Offload>(kSavedWorld, w, five, kSavedSteps);
      const sc::test::TempDir saves;
      test::run_part<Offload>(kSavedWorld, w, five, {.last = 3, .save_every = 1, .dir = saves.path()});
      for (const std::int64_t done : {1, 2, 3}) {
        const auto from = test::saved_after(done, saves.path());
        SCOPED_TRACE("resumed after " + std::to_string(done));
        test::expect_goes_on(
            test::run_part<Offload>(kSavedWorld, w, five, {.first = done, .last = kSavedSteps, .from = from}),
            expected);
        const std::unique_ptr<FileOps> ops = posix_file_ops();
        EXPECT_EQ(checkpoint::put_off_in(checkpoint::Reader(*ops, from).manifest()),
                  update == UpdateKind::exact
                      ? "{}"
                      : "the update by step " + std::to_string(done - 1) + "'s gradient");
      }
    }
}

// The disk completes its newest request first, or requests in a random order: nothing may be read from it
// before it was written, and no buffer refilled before its request is complete.
TEST_P(InfinitySaves, ChangeNothingOnADiskThatAnswersInAnotherOrder) {
  for_each_setting(
      [&](const SavedSetting& s, const Workload& w, const std::vector<test::RankResult>& expected) {
        const sc::test::TempDir saves;
        const Order order = w.precision.has_master() ? Order::any : Order::newest_first;
        test::expect_goes_on(
            test::run_part<Infinity>(kSavedWorld, w, with(options(s), order),
                                     {.last = kSavedSteps, .save_every = 2, .dir = saves.path()}),
            expected);
      });
}

INSTANTIATE_TEST_SUITE_P(Buffers, InfinitySaves,
                         ::testing::Combine(::testing::Values(1, 2, 3),
                                            ::testing::Values(DType::f32, DType::bf16)));

}  // namespace
}  // namespace sc
