// Tests weights loaded into and saved from strategies that hold everything, a slice, or one segment whole and
// one sliced.
#include "common/strategy/weights.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <c10/core/InferenceMode.h>

#include <limits>
#include <mutex>
#include <set>

#include "common/model/hf_names.h"
#include "common/model/hf_weights.h"
#include "common/storage/atomic_dir.h"
#include "common/strategy/nonfinite.h"
#include "tests/storage/temp_dir.h"
#include "tests/support/answers.h"
#include "tests/support/fake_strategy.h"

namespace sc {
namespace {

using test::TempDir;

/// A model whose sizes no usual number of ranks divides.
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

/// The state of a rank of a sharded strategy: its slices of the sharded segment and of the master, and the
/// whole segment `whole`. `filled`: with the initial values of seed 11, otherwise with -1.
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
        strategy.slices.push_back({purpose, unit, segment, range, in_tensor(values)});
      };
      hold(Purpose::parameters, segment == Segment::whole ? all : mine);
      if (master) hold(Purpose::master, mine);
      strategy.slices.push_back(
          {Purpose::momentum, unit, segment, mine, in_tensor(at::full({mine.size()}, 9.0, at::kFloat))});
    }
  }
  return strategy;
}

void expect_filled(const test::FakeStrategy& strategy, const ParamLayout& layout) {
  for (const StateSlice& slice : strategy.slices) {
    SCOPED_TRACE(std::string(name_of(slice.purpose)) + " of unit " + std::to_string(slice.unit));
    if (slice.purpose == Purpose::momentum) {
      EXPECT_TRUE(at::equal(slice.copy(), at::full({slice.range.size()}, 9.0, at::kFloat)))
          << "touched, though a file has no momentum";
    } else {
      EXPECT_TRUE(at::equal(
          slice.copy(),
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
    detail::save_weights(strategy, layout, comm, *posix_file_ops(), (dir / "w.safetensors").string(), [] {});
  }));
  // The saved weights are read unit by unit through the layout of one rank.
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
    detail::save_weights(whole, plain, comm, *posix_file_ops(), (dir / "w.safetensors").string(), [] {});
  }));
  for (int r = 0; r < world(); ++r) {
    const c10::InferenceMode inference;
    test::FakeStrategy strategy = sharded_strategy(layout, Rank{r}, false, true);
    detail::load_weights(strategy, layout, (dir / "w.safetensors").string());
    expect_filled(strategy, layout);
  }
}

/// Sets the last element of a tensor's values of `purpose` to `value`, where this rank holds it.
void spoil(test::FakeStrategy& strategy, const ParamLayout& layout, Purpose purpose, int unit,
           const std::string& tensor, float value) {
  const ParamTensor& t = *layout.find(unit, tensor);
  const std::int64_t at = t.offset + t.numel() - 1;
  for (StateSlice& slice : strategy.slices) {
    const bool here = slice.purpose == purpose && slice.unit == unit && slice.segment == t.segment &&
                      slice.range.begin <= at && at < slice.range.end;
    if (here) slice.write({at, at + 1}, at::full({1}, value, at::kFloat));
  }
}

TEST_P(Weights, TheFirstThatIsNotFiniteIsNamedOnAllRanks) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN(),
                  kInf = std::numeric_limits<float>::infinity();
  const ParamLayout layout = this->layout();
  const auto named = [&](bool exact, const std::function<void(test::FakeStrategy&)>& change) {
    std::set<std::string> said;
    std::mutex lock;
    rethrow_first(test::on_ranks(world(), [&](Communicator& comm) {
      const c10::InferenceMode inference;
      test::FakeStrategy strategy = sharded_strategy(layout, comm.rank(), true, true);
      change(strategy);
      const std::string name = detail::nonfinite_weight(strategy, layout, comm, exact);
      const std::scoped_lock hold(lock);
      said.insert(name);
    }));
    return said.size() == 1 ? *said.begin() : "not the same on all ranks";
  };
  const auto spoils = [&](Purpose purpose, std::initializer_list<std::pair<int, const char*>> tensors,
                          float value) {
    return [&, purpose, value, all = std::vector(tensors)](test::FakeStrategy& strategy) {
      for (const auto& [unit, tensor] : all) spoil(strategy, layout, purpose, unit, tensor, value);
    };
  };
  test::expect_texts({
      {named(false, [](auto&) {}), ""},
      {named(false, spoils(Purpose::momentum, {{1, "h.0.ln_1.bias"}}, kNan)), ""}  // No weight.
  });
  const std::initializer_list<std::pair<int, const char*>> two = {{2, "h.1.ln_2.bias"},
                                                                  {1, "h.0.mlp.c_fc.weight"}};
  test::expect_texts({
      {named(true, spoils(Purpose::master, two, kNan)), "h.0.mlp.c_fc.weight of unit 1"},
      {named(false, spoils(Purpose::parameters, {{3, "ln_f.bias"}}, -kInf)), "ln_f.bias of unit 3"},
      {named(true, spoils(Purpose::parameters, {{3, "ln_f.bias"}}, kInf)), ""}  // The master is exact.
  });
}

TEST_P(Weights, AFileWithANumberThatIsNoneIsRefused) {
  const TempDir dir;
  const std::string path = (dir / "w.safetensors").string();
  const ParamLayout layout = this->layout(), plain(layout.config(), WorldSize{1});
  for (const float value :
       {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    rethrow_first(test::on_ranks(1, [&](Communicator& comm) {
      const c10::InferenceMode inference;
      test::FakeStrategy whole = sharded_strategy(plain, Rank{0}, true, false);
      spoil(whole, plain, Purpose::parameters, 2, "h.1.attn.c_proj.bias", value);
      detail::save_weights(whole, plain, comm, *posix_file_ops(), path, [] {});
    }));
    test::FakeStrategy strategy = sharded_strategy(layout, Rank{0}, false, true);
    EXPECT_EQ(test::input_error([&] { detail::load_weights(strategy, layout, path); }),
              "65|" + path +
                  ": tensor 'transformer.h.1.attn.c_proj.bias' holds a number that is not finite (NaN or "
                  "infinite), "
                  "element 11 of 12|weights that were saved before the training that made them went wrong");
  }
}

INSTANTIATE_TEST_SUITE_P(Worlds, Weights,
                         ::testing::Combine(::testing::Values(1, 2, 3), ::testing::Bool(),
                                            ::testing::Values(0, 100)));

/// Values outside of tensors that count reads, none of which may exceed kStatePiece elements.
class Distant final : public StateValues {
 public:
  explicit Distant(at::Tensor values) : values_(std::move(values)) {}
  [[nodiscard]] DType dtype() const override { return DType::f32; }
  void read(Range part, at::Tensor& into) const override {
    EXPECT_LE(part.size(), kStatePiece);
    into.copy_(values_.narrow(0, part.begin, part.size()));
  }
  void write(Range part, const at::Tensor& from) override {
    EXPECT_LE(part.size(), kStatePiece);
    values_.narrow(0, part.begin, part.size()).copy_(from);
  }

 private:
  at::Tensor values_;
};

/// Rank `rank` of two stages with two replicas each of a tied model. The first stage has units 0 and 1; the
/// second has units 2 and 3 and a copy of wte, the beginning of unit 0.
test::FakeStrategy stage_strategy(const ParamLayout& layout, int rank, bool filled) {
  test::FakeStrategy strategy;
  const auto hold = [&](int unit, Range range) {
    const at::Tensor whole = whole_vector(layout, unit, Segment::sharded);
    at::Tensor values = filled ? whole.narrow(0, range.begin, range.size()).clone()
                               : at::full({range.size()}, -1.0, at::kFloat);
    strategy.slices.push_back(
        {Purpose::parameters, unit, Segment::sharded, range, std::make_shared<Distant>(values), Place::disk});
  };
  const GptConfig& model = layout.config();
  for (const int unit : rank < 2 ? std::vector{0, 1} : std::vector{2, 3})
    hold(unit, {0, layout.unit(unit).sharded_size});
  if (rank >= 2) hold(0, {0, model.vocab_padded() * model.width});
  return strategy;
}

// All ranks take part in gathering a unit, which two ranks hold (four ranks hold wte); only one of them
// provides its values, so that nothing is added twice.
TEST(WeightsOfStages, WithReplicasAndATiedCopyAreProvidedOnce) {
  const TempDir dir;
  const ParamLayout layout(odd_model(true), WorldSize{1});
  rethrow_first(test::on_ranks(4, [&](Communicator& comm) {
    const c10::InferenceMode inference;
    test::FakeStrategy strategy = stage_strategy(layout, static_cast<int>(to_int(comm.rank())), true);
    detail::for_each_whole_unit(strategy, layout, comm, [&](int unit, const UnitTensors& values) {
      EXPECT_TRUE(at::equal(values.sharded, whole_vector(layout, unit, Segment::sharded))) << "unit " << unit;
    });
    detail::save_weights(strategy, layout, comm, *posix_file_ops(), (dir / "w.safetensors").string(), [] {});
  }));
  for (int rank = 0; rank < 4; ++rank) {
    const c10::InferenceMode inference;
    test::FakeStrategy strategy = stage_strategy(layout, rank, false);
    detail::load_weights(strategy, layout, (dir / "w.safetensors").string());
    expect_filled(strategy, layout);
  }
}

// Saved weights are the newest version, not an older one.
TEST(WeightsOfVersions, AreTheNewest) {
  const ParamLayout layout(odd_model(true), WorldSize{1});
  rethrow_first(test::on_ranks(1, [&](Communicator& comm) {
    const c10::InferenceMode inference;
    test::FakeStrategy strategy = sharded_strategy(layout, Rank{0}, true, false);
    StateSlice old = strategy.slices[0];
    old.version = 1;
    old.values = in_tensor(at::full({old.range.size()}, -5.0, at::kFloat));
    strategy.slices.push_back(old);
    detail::for_each_whole_unit(strategy, layout, comm, [&](int unit, const UnitTensors& values) {
      EXPECT_TRUE(at::equal(values.sharded, whole_vector(layout, unit, Segment::sharded))) << "unit " << unit;
    });
  }));
}

TEST(SavePath, IsCheckedBeforeARun) {
  const TempDir dir;
  const auto ops = posix_file_ops();
  const auto answer = [&](const Path& path) {
    return test::input_error([&] { detail::check_save_path(*ops, path, odd_model(true)); },
                             dir.path().string());
  };
  EXPECT_EQ(answer(dir / "w.safetensors"), "no InputError");
  EXPECT_EQ(ops->kind(dir / "w.safetensors"), PathKind::absent) << "the check leaves no file";
  EXPECT_EQ(answer(dir / "new" / "folder" / "w.safetensors"), "no InputError");
  EXPECT_EQ(ops->kind(dir / "new" / "folder"), PathKind::directory);
  EXPECT_EQ(answer(dir / "new"),
            "73|DIR/new: is a directory, and a file is to be written|give the path of a file");
  const auto ops_config = [&](std::int64_t heads) {
    GptConfig config = odd_model(true);
    config.heads = heads;
    atomic_write_file(*ops, dir / "config.json", hf_metadata(config).at("config.json"));
  };
  ops_config(odd_model(true).heads);
  EXPECT_EQ(answer(dir / "model.safetensors"), "no InputError");
  ops_config(7);
  EXPECT_EQ(answer(dir / "w.safetensors"), "no InputError") << "of no folder that transformers loads";
  EXPECT_TRUE(answer(dir / "model.safetensors").starts_with("65|DIR/config.json: \"n_head\" is 7, and this"));
  EXPECT_EQ(
      answer("/dev/null"),
      "73|/dev/null: is not a regular file (it is a pipe, a device or a socket)|give the path of a file");
}

}  // namespace
}  // namespace sc
