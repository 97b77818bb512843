// Weights in and out of strategies that hold everything, or a slice, or one segment in full and one in
// slices.
#include "common/strategy/weights.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <c10/core/InferenceMode.h>

#include "common/model/hf_weights.h"
#include "tests/storage/temp_dir.h"
#include "tests/support/fake_strategy.h"

namespace sc {
namespace {

using testing::TempDir;

/// Shapes that divide by nothing convenient.
GptConfig odd_model(bool tied) {
  return {.layers = 2, .heads = 2, .width = 12, .context = 7, .vocab = 37, .tied = tied};
}

at::Tensor whole_vector(const ParamLayout& layout, int unit, Segment segment) {
  const UnitLayout& u = layout.unit(unit);
  const UnitTensors values{at::full({u.sharded_size}, 0.0, at::kFloat),
                           at::full({u.whole_size}, 0.0, at::kFloat)};
  init_unit(layout, unit, 11, values);
  return values.segment(segment).clone();
}

/// What rank `rank` of a sharded strategy holds: its slice of the sharded segment and of the master, all of
/// the whole segment. filled: with the initial values of seed 11, else with -1.
test::FakeStrategy sharded_strategy(const ParamLayout& layout, Rank rank, bool filled, bool master) {
  test::FakeStrategy strategy;
  for (int unit = 0; unit < layout.num_units(); ++unit) {
    for (const Segment segment : {Segment::sharded, Segment::whole}) {
      const Range all{0, layout.unit(unit).size(segment)}, mine = layout.slice(unit, segment, rank);
      if (all.size() == 0) continue;
      const auto hold = [&](Purpose purpose, Range range) {
        at::Tensor values =
            filled ? whole_vector(layout, unit, segment).narrow(0, range.begin, range.size()).clone()
                   : at::full({range.size()}, -1.0, at::kFloat);
        strategy.slices.push_back({purpose, unit, segment, range, values});
      };
      hold(Purpose::parameters, segment == Segment::whole ? all : mine);
      if (master) hold(Purpose::master, mine);
      strategy.slices.push_back(
          {Purpose::momentum, unit, segment, mine, at::full({mine.size()}, 9.0, at::kFloat)});
    }
  }
  return strategy;
}

void expect_filled(const test::FakeStrategy& strategy, const ParamLayout& layout) {
  for (const StateSlice& slice : strategy.slices) {
    SCOPED_TRACE(std::string(name_of(slice.purpose)) + " of unit " + std::to_string(slice.unit));
    if (slice.purpose == Purpose::momentum) {
      EXPECT_TRUE(at::equal(slice.values, at::full({slice.range.size()}, 9.0, at::kFloat)))
          << "touched, though a file has no momentum";
    } else {
      EXPECT_TRUE(at::equal(
          slice.values,
          whole_vector(layout, slice.unit, slice.segment).narrow(0, slice.range.begin, slice.range.size())));
    }
  }
}

void rethrow_first(const std::vector<std::exception_ptr>& thrown) {
  for (const std::exception_ptr& error : thrown) {
    if (error) std::rethrow_exception(error);
  }
}

class Weights : public ::testing::TestWithParam<std::tuple<int, bool, std::int64_t>> {
 protected:
  [[nodiscard]] int world() const { return std::get<0>(GetParam()); }
  [[nodiscard]] ParamLayout layout() const {
    return {odd_model(std::get<1>(GetParam())), WorldSize{world()}, std::get<2>(GetParam())};
  }
};

TEST_P(Weights, SlicesOfAllRanksBecomeOneFile) {
  const TempDir dir;
  const ParamLayout layout = this->layout();
  rethrow_first(test::on_ranks(world(), [&](Communicator& comm) {
    const c10::InferenceMode inference;
    test::FakeStrategy strategy = sharded_strategy(layout, comm.rank(), true, true);
    detail::save_weights(strategy, layout, comm, (dir / "w.safetensors").string());
  }));
  // Read back unit by unit, in another layout: one rank, one segment.
  const ParamLayout plain(layout.config(), WorldSize{1});
  const HfWeights file(dir / "w.safetensors", layout.config());
  for (int unit = 0; unit < plain.num_units(); ++unit) {
    const UnitTensors read{at::full({plain.unit(unit).sharded_size}, -1.0, at::kFloat), {}};
    file.load_unit(plain, unit, read);
    EXPECT_TRUE(at::equal(read.sharded, whole_vector(plain, unit, Segment::sharded))) << "unit " << unit;
  }
}

TEST_P(Weights, AFileFillsEverySliceAndTheMaster) {
  const TempDir dir;
  const ParamLayout layout = this->layout();
  const ParamLayout plain(layout.config(), WorldSize{1});
  rethrow_first(test::on_ranks(1, [&](Communicator& comm) {
    const c10::InferenceMode inference;
    test::FakeStrategy whole = sharded_strategy(plain, Rank{0}, true, false);
    detail::save_weights(whole, plain, comm, (dir / "w.safetensors").string());
  }));
  for (int r = 0; r < world(); ++r) {
    const c10::InferenceMode inference;
    test::FakeStrategy strategy = sharded_strategy(layout, Rank{r}, false, true);
    detail::load_weights(strategy, layout, (dir / "w.safetensors").string());
    expect_filled(strategy, layout);
  }
}

INSTANTIATE_TEST_SUITE_P(Worlds, Weights,
                         ::testing::Combine(::testing::Values(1, 2, 3), ::testing::Bool(),
                                            ::testing::Values(0, 100)));

TEST(SavePath, IsCheckedBeforeARun) {
  const TempDir dir;
  const auto ops = posix_file_ops();
  const auto answer = [&](const Path& path) {
    return testing::input_error([&] { detail::check_save_path(*ops, path); }, dir.path().string());
  };
  EXPECT_EQ(answer(dir / "w.safetensors"), "no InputError");
  EXPECT_EQ(ops->kind(dir / "w.safetensors"), PathKind::absent) << "the check leaves no file";
  EXPECT_EQ(answer(dir / "new" / "folder" / "w.safetensors"), "no InputError");
  EXPECT_EQ(ops->kind(dir / "new" / "folder"), PathKind::directory);
  EXPECT_EQ(answer(dir / "new"), "73|DIR/new: is a directory|--save takes the path of the file to write");
  EXPECT_EQ(answer("/dev/null"), "73|/dev/null: is not a file|--save takes the path of the file to write");
}

}  // namespace
}  // namespace sc
