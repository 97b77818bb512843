// Tests that state saved by one strategy on one world and loaded by another on another world is equal to the
// bit, and that each element is saved once and padding never.
#include "common/strategy/saved_state.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <tuple>

#include "common/storage/checkpoint/generations.h"
#include "common/strategy/state_placement.h"
#include "lessons/01_data_parallel/data_parallel.h"
#include "lessons/02_zero1/zero1.h"
#include "lessons/04_zero3/zero3.h"
#include "lessons/10_tensor_parallel/tensor_parallel.h"
#include "tests/storage/temp_dir.h"
#include "tests/support/answers.h"
#include "tests/support/fake_strategy.h"
#include "tests/support/saving.h"

namespace sc::detail {
namespace {

using checkpoint::Reader;
constexpr std::int64_t kSteps = 3;

// --- which rank saves --------------------------------------------------------------------------------------

StateSlice slice_of(Range range) {
  return {Purpose::momentum, 2, Segment::sharded, range, in_tensor(at::empty({range.size()}, at::kFloat))};
}

/// The rank that saves each element of one vector; -1 where nobody does.
///   held  ranges of the vector by the rank that holds them
std::vector<int> savers_of(const std::vector<std::vector<Range>>& held, std::int64_t size) {
  const ParamLayout layout(test::odd_workload().model, WorldSize{1});
  std::vector<int> saver(static_cast<std::size_t>(size), -1);
  std::mutex mutex;
  for (const auto& error : test::on_ranks(static_cast<int>(held.size()), [&](Communicator& comm) {
         std::vector<StateSlice> slices;
         for (const Range& range : held[static_cast<std::size_t>(to_int(comm.rank()))])
           slices.push_back(slice_of(range));
         const StatePlacement placement(slices, layout, comm);
         const std::lock_guard lock(mutex);
         for (const StateSlice& slice : slices) {
           for (const Range& mine : placement.even_share(key_of(slice, layout), slice.range)) {
             EXPECT_LE(slice.range.begin, mine.begin);
             EXPECT_LE(mine.end, slice.range.end);
             for (std::int64_t i = mine.begin; i < mine.end; ++i) {
               EXPECT_EQ(saver[static_cast<std::size_t>(i)], -1) << "element " << i << " is saved twice";
               saver[static_cast<std::size_t>(i)] = to_int(comm.rank());
             }
           }
         }
       })) {
    if (error) std::rethrow_exception(error);
  }
  return saver;
}

TEST(StatePlacement, EvenShareCoversEachElementOnce) {
  test::expect_each<std::vector<int>>({
      {savers_of({{{0, 3}}, {{3, 5}}}, 5), (std::vector<int>{0, 0, 0, 1, 1})},                  // Slices.
      {savers_of({{{0, 7}}, {{0, 7}}, {{0, 7}}}, 7), (std::vector<int>{0, 0, 1, 1, 2, 2, 2})},  // Replicas.
      {savers_of({{{0, 8}}, {}, {{4, 10}}}, 10),
       (std::vector<int>{0, 0, 0, 0, 0, 0, 2, 2, 2, 2})},                        // In part on two.
      {savers_of({{{0, 2}}, {{0, 2}}, {{0, 2}}}, 2), (std::vector<int>{1, 2})},  // Fewer than holders.
      {savers_of({{{0, 4}, {6, 8}}, {{4, 6}, {6, 8}}}, 8),
       (std::vector<int>{0, 0, 0, 0, 1, 1, 0, 1})}  // Two parts on one rank.
  });
}

// --- elements of several sizes -----------------------------------------------------------------------------

TEST(SavedState, EntriesAreAlignedWhateverTheirSizes) {
  const ParamLayout layout(test::odd_workload().model, WorldSize{1});
  const ParamTensor& tensor = layout.unit(1).tensors.front();
  const Range odd{tensor.offset, tensor.offset + 3};
  test::FakeStrategy strategy;
  const auto add = [&](Purpose purpose, at::ScalarType type, std::int64_t version) {
    strategy.slices.push_back({purpose, 1, tensor.segment, odd, in_tensor(at::arange(1, 4, type))});
    strategy.slices.back().version = version;
  };
  add(Purpose::parameters, at::kBFloat16, 1);
  add(Purpose::master, at::kFloat, 0);
  strategy.flying.push_back({"tokens", at::arange(5, 7, at::kLong)});
  for (const auto& error : test::on_ranks(1, [&](Communicator& comm) {
         const c10::InferenceMode inference;
         const SavedState state(strategy, layout, comm);
         std::vector<DType> types;
         for (const checkpoint::Entry& entry : state.entries()) types.push_back(entry.dtype);
         EXPECT_EQ(types, (std::vector<DType>{DType::i64, DType::f32, DType::bf16}));
         const at::Tensor copy = at::empty({state.bytes().value()}, at::kByte);
         state.copy(copy);
         const auto values = [&](std::int64_t begin, std::int64_t size, at::ScalarType type) {
           return copy.narrow(0, begin, size).view(type).to(at::kLong);
         };
         EXPECT_TRUE(values(0, 16, at::kLong).equal(at::arange(5, 7, at::kLong)));
         EXPECT_TRUE(values(16, 12, at::kFloat).equal(at::arange(1, 4, at::kLong)));
         EXPECT_TRUE(values(28, 6, at::kBFloat16).equal(at::arange(1, 4, at::kLong)));
       })) {
    if (error) std::rethrow_exception(error);
  }
}

// --- rounded weights, older ones among them ----------------------------------------------------------------

/// A strategy with 16-bit weights, their master, both moments and two older versions of the weights, all
/// different.
test::FakeStrategy with_older_versions(const ParamLayout& layout, float first) {
  test::FakeStrategy strategy;
  strategy.of_layout = &layout;
  for (int unit = 0; unit < layout.num_units(); ++unit) {
    const std::int64_t n = layout.unit(unit).sharded_size;
    const auto add = [&](Purpose purpose, at::ScalarType type, std::int64_t version) {
      const at::Tensor values = at::arange(n, at::kFloat).mul_(1.0 / 512).add_(first);
      strategy.slices.push_back({purpose, unit, Segment::sharded, {0, n}, in_tensor(values.to(type))});
      strategy.slices.back().version = version, strategy.slices.back().pending = version != 0;
      first += 16;
    };
    add(Purpose::parameters, at::kBFloat16, 0);
    add(Purpose::master, at::kFloat, 0);
    add(Purpose::momentum, at::kFloat, 0);
    add(Purpose::variance, at::kFloat, 0);
    add(Purpose::parameters, at::kBFloat16, 1);
    add(Purpose::parameters, at::kBFloat16, 2);
  }
  return strategy;
}

// A loaded older version equals the saved one and is not rounded anew from the master.
TEST(SavedState, OlderVersionsComeBackBesideTheirMaster) {
  const ParamLayout layout(test::odd_workload().model, WorldSize{1});
  const test::TempDir dir;
  test::FakeStrategy saved = with_older_versions(layout, 1), found = with_older_versions(layout, -5000);
  test::Saving saving(dir / "saved", 1, kSteps);
  for (const auto& error : test::on_ranks(1, [&](Communicator& comm) {
         const c10::InferenceMode inference;
         saving.write(saved, comm, test::step_scalars(0, 7));
         saving.commit();
         const std::unique_ptr<FileOps> ops = posix_file_ops();
         Reader reader(*ops, dir / "saved");
         EXPECT_EQ(reader.manifest().updates, 7);
         restore_state(found, layout, reader);
         const std::vector<StateSlice> was = saved.state(), is = found.state();
         for (std::size_t i = 0; i < was.size(); ++i) {
           SCOPED_TRACE(std::string(name_of(was[i].purpose)) + " of unit " + std::to_string(was[i].unit) +
                        ", version " + std::to_string(was[i].version));
           const bool rounded = was[i].purpose == Purpose::parameters && was[i].version == 0;
           for (const ParamTensor& tensor : layout.unit(was[i].unit).tensors) {
             if (tensor.segment != was[i].segment) continue;
             at::Tensor wanted = was[rounded ? i + 1 : i].copy().narrow(0, tensor.offset, tensor.numel());
             EXPECT_TRUE(is[i]
                             .copy()
                             .narrow(0, tensor.offset, tensor.numel())
                             .equal(wanted.to(is[i].copy().scalar_type())));
           }
         }
       })) {
    if (error) std::rethrow_exception(error);
  }
}

// A slice of a rank that holds some columns of a matrix may begin and end in the middle of a row.
TEST(SavedState, ColumnsComeBackWhereverASliceEnds) {
  const GptConfig model = test::odd_workload().model;
  const ParamLayout layout(model, WorldSize{1});
  const test::TempDir dir;
  test::FakeStrategy saved = with_older_versions(layout, 1);
  const at::Tensor whole = saved.slices[7].copy();  // unit 1's master
  test::Saving saving(dir / "saved", 1, kSteps);
  for (const auto& error : test::on_ranks(1, [&](Communicator& comm) {
         const c10::InferenceMode inference;
         saving.write(saved, comm, test::step_scalars(0, 7));
         saving.commit();
         const std::unique_ptr<FileOps> ops = posix_file_ops();
         Reader reader(*ops, dir / "saved");
         int found = 0;
         for (const int rank : {0, 1}) {
           const ParamLayout part(model, WorldSize{1}, TensorCut{rank, 2});
           const std::int64_t size = part.unit(1).sharded_size;
           const at::Tensor here = at::zeros({size}, at::kFloat);
           test::FakeStrategy resumed;
           for (std::int64_t begin = 0; begin < size; begin += 97) {
             const Range slice{begin, std::min(begin + 97, size)};
             resumed.slices.push_back({Purpose::master, 1, Segment::sharded, slice,
                                       in_tensor(here.narrow(0, slice.begin, slice.size()))});
           }
           restore_state(resumed, part, reader);
           for (const ParamTensor& tensor : part.unit(1).tensors) {
             if (!tensor.is_columns()) continue;
             const std::int64_t begin = layout.find(1, tensor.name)->offset, row = tensor.whole.split;
             const at::Tensor rows = whole.narrow(0, begin, tensor.whole.numel()).view({-1, row});
             EXPECT_TRUE(here.narrow(0, tensor.offset, tensor.numel())
                             .view({-1, tensor.run()})
                             .equal(rows.narrow(1, tensor.whole.part.begin, tensor.run())))
                 << tensor.name << " on rank " << rank;
             ++found;
           }
         }
         EXPECT_EQ(found, 4) << "both matrices of a block on both ranks";
       })) {
    if (error) std::rethrow_exception(error);
  }
}

// --- from one strategy to another --------------------------------------------------------------------------

/// A whole state: the bytes of each (tensor, purpose).
using Whole = std::map<checkpoint::Key, std::vector<std::byte>>;

Whole whole_of(const Path& dir) {
  const std::unique_ptr<FileOps> ops = posix_file_ops();
  Reader reader(*ops, dir);
  reader.verify();
  Whole whole;
  for (const checkpoint::Key& key : reader.keys()) {
    const Range all{0, reader.numel(key.tensor)};
    std::vector<std::byte>& bytes = whole[key];
    bytes.resize(static_cast<std::size_t>(bytes_of(Elements(all.size()), reader.dtype(key)).value()));
    reader.read(key, all, bytes);
  }
  return whole;
}

/// A world of ranks that run strategy S.
template <Lesson S>
class WorldOf {
 public:
  WorldOf(int world, Workload w, typename S::Options options = {})
      : world_(world), w_(std::move(w)), options_(std::move(options)) {}

  /// Runs f(strategy, comm, scalars, shape) on every rank.
  template <class F>
  void on_ranks(const F& f) const {
    for (const auto& error : test::on_ranks(world_, [&](Communicator& comm) {
           test::Alone<S> rank(comm,
                               test::shape_for(w_, world_, to_int(comm.rank()), CommBackend::local,
                                               typename S::Plans(options_).mesh(WorldSize{world_})),
                               options_, 1e-2);
           f(rank.lesson, comm, rank.scalars, rank.shape);
         })) {
      if (error) std::rethrow_exception(error);
    }
  }

  /// Trains kSteps steps and saves a checkpoint to `dir`.
  void train_and_save(const Path& dir) const {
    test::Saving saving(dir, world_, kSteps, true);
    on_ranks([&](Strategy& strategy, Communicator& comm, const StepScalars& scalars, const RunShape& shape) {
      for (std::int64_t step = 0; step < kSteps; ++step) strategy.train_step(test::made_up_step(shape, step));
      saving.write(strategy, comm, scalars);
    });
    saving.commit();
  }

  /// Loads `from` into a strategy filled with wrong values, and saves it to `to`.
  void take_over(const Path& from, const Path& to) const {
    test::Saving saving(to, world_, kSteps, true);
    on_ranks(
        [&](Strategy& strategy, Communicator& comm, const StepScalars& scalars, const RunShape& /*shape*/) {
          for (StateSlice& slice : strategy.state())
            slice.write(slice.range, at::full({slice.range.size()}, NAN, at::kFloat));
          const std::unique_ptr<FileOps> ops = posix_file_ops();
          Reader reader(*ops, from);
          restore_state(strategy, strategy.layout(), reader);
          expect_zero_padding_and_rounded_weights(strategy);
          saving.write(strategy, comm, scalars);
        });
    saving.commit();
  }

 private:
  static void expect_zero_padding_and_rounded_weights(Strategy& strategy) {
    std::map<StateKey, at::Tensor> masters;
    std::vector<StateSlice> slices = strategy.state();
    for (const StateSlice& slice : slices) {
      if (slice.purpose == Purpose::gradients || slice.purpose == Purpose::workspace) continue;
      const at::Tensor values = slice.copy().to(at::kFloat);
      std::vector<bool> named(static_cast<std::size_t>(slice.range.size()), false);
      for (const ParamTensor& tensor : strategy.layout().unit(slice.unit).tensors) {
        if (tensor.segment != slice.segment) continue;
        const Range part = shared(slice.range, {tensor.offset, tensor.offset + tensor.numel()});
        for (std::int64_t i = part.begin; i < part.end; ++i)
          named[static_cast<std::size_t>(i - slice.range.begin)] = true;
      }
      for (std::int64_t i = 0; i < slice.range.size(); ++i) {
        const float value = values.const_data_ptr<float>()[i];
        EXPECT_FALSE(std::isnan(value)) << name_of(slice.purpose) << " of unit " << slice.unit << " was left";
        if (!named[static_cast<std::size_t>(i)]) {
          EXPECT_EQ(value, 0) << "padding";
        }
      }
    }
    for (const StateSlice& master : slices) {
      if (master.purpose != Purpose::master) continue;
      for (const StateSlice& weights : slices) {
        if (weights.purpose != Purpose::parameters || weights.unit != master.unit ||
            weights.segment != master.segment)
          continue;
        const Range both = shared(master.range, weights.range);
        if (both.size() <= 0) continue;
        at::Tensor rounded = at::empty({both.size()}, at::kBFloat16), held = at::empty_like(rounded);
        master.read(both, rounded);
        weights.read(both, held);
        EXPECT_EQ(std::memcmp(rounded.const_data_ptr(), held.const_data_ptr(), held.nbytes()), 0)
            << "weights of unit " << weights.unit << " are not their master, rounded";
      }
    }
  }

  int world_;
  Workload w_;
  typename S::Options options_;
};

class BetweenStrategies : public ::testing::TestWithParam<std::tuple<DType, bool>> {
 protected:
  static Workload workload() {
    const auto [dtype, tied] = GetParam();
    Workload w = test::odd_workload();
    w.precision = {.dtype = dtype, .grad_dtype = dtype, .reduce_dtype = dtype};
    w.model.tied = tied;
    return w;
  }
};

TEST_P(BetweenStrategies, StateIsTakenOverToTheBit) {
  const Workload w = workload();
  const test::TempDir dir;
  WorldOf<DataParallel>(3, w).train_and_save(dir / "01");
  const Whole first = whole_of(dir / "01");
  WorldOf<Zero3>(2, w, {.persist_below = 50}).take_over(dir / "01", dir / "04");
  WorldOf<Zero1>(4, w).take_over(dir / "04", dir / "02");
  WorldOf<Zero3>(1, w).take_over(dir / "02", dir / "04 alone");
  WorldOf<DataParallel>(2, w).take_over(dir / "04 alone", dir / "01 again");
  WorldOf<TensorParallel>(2, w, {.tokens = TokenShare::whole}).take_over(dir / "01 again", dir / "10");
  WorldOf<TensorParallel>(1, w).take_over(dir / "10", dir / "10 alone");
  WorldOf<Zero3>(3, w).take_over(dir / "10", dir / "04 of 10");
  for (const char* name : {"04", "02", "04 alone", "01 again", "10", "10 alone", "04 of 10"})
    EXPECT_TRUE(whole_of(dir / name) == first) << name;
  EXPECT_GT(first.size(), 0U);
}

// A tensor that all tensor ranks hold is saved by one of them, and columns of a matrix are saved as columns.
TEST_P(BetweenStrategies, TensorRanksSaveEachElementOnce) {
  Workload w = workload();
  w.model.heads = 5;
  w.batch.micro = 2;
  const test::TempDir dir;
  WorldOf<TensorParallel>(3, w).train_and_save(dir / "10");
  const std::unique_ptr<FileOps> ops = posix_file_ops();
  const Reader reader(*ops, dir / "10");
  std::int64_t elements = 0, bytes = 0;
  for (const checkpoint::TensorShape& tensor : reader.manifest().tensors) elements += 3 * tensor.numel();
  for (const checkpoint::FileSums& file : reader.manifest().files) bytes += file.bytes - file.header_bytes;
  EXPECT_EQ(bytes, 4 * elements);
  const Whole whole = whole_of(dir / "10");
  WorldOf<TensorParallel>(2, w).take_over(dir / "10", dir / "10 on 2");
  WorldOf<Zero3>(4, w).take_over(dir / "10 on 2", dir / "04");
  WorldOf<TensorParallel>(5, w, {.tokens = TokenShare::whole}).take_over(dir / "04", dir / "10 on 5");
  for (const char* name : {"10 on 2", "04", "10 on 5"}) EXPECT_TRUE(whole_of(dir / name) == whole) << name;
}

TEST_P(BetweenStrategies, WeightsAndBothMomentsAreSavedOnceAndPaddingNever) {
  const Workload w = workload();
  const test::TempDir dir;
  WorldOf<Zero3>(3, w).train_and_save(dir / "04");
  const Whole whole = whole_of(dir / "04");
  const std::string weights = w.precision.has_master() ? "master" : "parameters";
  const ParamLayout layout(w.model, WorldSize{1});
  std::int64_t tensors = 0;
  for (const checkpoint::TensorShape& tensor : tensors_of(layout)) {
    ++tensors;
    for (const std::string& purpose : {weights, std::string("momentum"), std::string("variance")}) {
      const auto found = whole.find({tensor.name, purpose});
      ASSERT_NE(found, whole.end()) << tensor.name << "@" << purpose;
      EXPECT_EQ(static_cast<std::int64_t>(found->second.size()), 4 * tensor.numel()) << "in fp32";
    }
  }
  EXPECT_EQ(static_cast<std::int64_t>(whole.size()), 3 * tensors) << "and nothing else";
  // Three ranks save disjoint parts, so their files together are as long as the state.
  const std::unique_ptr<FileOps> ops = posix_file_ops();
  const Reader reader(*ops, dir / "04");
  std::int64_t elements = 0;
  for (const checkpoint::TensorShape& tensor : reader.manifest().tensors) elements += 3 * tensor.numel();
  std::int64_t bytes = 0;
  for (const checkpoint::FileSums& file : reader.manifest().files) bytes += file.bytes - file.header_bytes;
  EXPECT_EQ(bytes, 4 * elements);
}

INSTANTIATE_TEST_SUITE_P(Models, BetweenStrategies,
                         ::testing::Combine(::testing::Values(DType::f32, DType::bf16),
                                            ::testing::Values(true, false)));

}  // namespace
}  // namespace sc::detail
