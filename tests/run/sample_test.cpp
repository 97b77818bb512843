// Tests text samples of a trained model.
#include "common/run/sample.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/log_softmax.h>
#include <c10/core/InferenceMode.h>

#include <limits>
#include <optional>

#include "common/model/activation_buffers.h"
#include "common/model/unit_views.h"
#include "tests/support/fake_strategy.h"

namespace sc {
namespace {

using detail::make_sample;
using detail::Sample;
using detail::TextModel;

constexpr std::int64_t kSequence = 9;

RunShape odd_shape(bool tied) {
  RunShape shape;
  shape.workload.model = {.layers = 3, .heads = 2, .width = 20, .context = 12, .vocab = 37, .tied = tied};
  shape.workload.batch = {.sequence = kSequence, .global = 2, .micro = 2};
  shape.workload.activations = Activations::recompute;
  return shape;
}

/// Initial weights, enlarged, so that the model clearly prefers some tokens.
std::vector<UnitTensors> weights(const ParamLayout& layout, const at::Tensor& arena) {
  std::vector<UnitTensors> units = unit_views(layout, arena);
  for (int unit = 0; unit < layout.num_units(); ++unit) {
    init_unit(layout, unit, 11, units[static_cast<std::size_t>(unit)]);
  }
  arena.mul_(3);
  return units;
}

test::FakeStrategy strategy_of(const ParamLayout& layout, const std::vector<UnitTensors>& units, Rank rank) {
  test::FakeStrategy strategy;
  strategy.of_layout = &layout;
  for (int unit = 0; unit < layout.num_units(); ++unit) {
    const Range mine = layout.slice(unit, Segment::sharded, rank);
    strategy.slices.push_back(
        {Purpose::parameters, unit, Segment::sharded, mine,
         in_tensor(
             units[static_cast<std::size_t>(unit)].sharded.narrow(0, mine.begin, mine.size()).clone())});
  }
  return strategy;
}

/// Samples of all ranks of a world in which each holds a slice.
///   spoiled  a unit whose weights become infinite
std::vector<Sample> sample_on(int world, std::int64_t count, std::uint64_t seed, bool tied = true,
                              double temperature = 1, std::optional<int> spoiled = {}) {
  std::vector<Sample> samples(static_cast<std::size_t>(world));
  std::vector<TokenId> text;
  for (TokenId i = 0; i < 40; ++i) text.push_back(static_cast<TokenId>(i * 7 % 37));
  const Rows rows(text, {.packing = Packing::pack, .sequence = kSequence, .end_of_text = 36});
  const auto thrown = test::on_ranks(world, [&](Communicator& comm) {
    const c10::InferenceMode inference;
    RunShape shape = odd_shape(tied);
    shape.workload.seed = seed;
    const ParamLayout layout(shape.workload.model, WorldSize{world});
    const auto units = weights(layout, at::full({layout.arena_size().value()}, 0.0, at::kFloat));
    if (spoiled)
      units[static_cast<std::size_t>(*spoiled)].sharded.fill_(std::numeric_limits<float>::infinity());
    test::FakeStrategy strategy = strategy_of(layout, units, comm.rank());
    Ledger ledger(at::kCPU);
    samples[static_cast<std::size_t>(to_int(comm.rank()))] =
        make_sample(strategy, {shape, detail::beginning_of(rows), 30, temperature}, ledger, comm, count);
    EXPECT_EQ(ledger.live_total(), Bytes(0)) << "all of it is given back";
    EXPECT_EQ(ledger.peak_total() > Bytes(0), comm.rank() == Rank{0});
  });
  for (const std::exception_ptr& error : thrown) {
    if (error) std::rethrow_exception(error);
  }
  return samples;
}

// The loss of a token is the negative logarithm of the probability with which a sample draws it.
TEST(Sample, LogitsAreTheModels) {
  const c10::InferenceMode inference;
  for (const bool tied : {true, false}) {
    RunShape shape = odd_shape(tied);
    shape.workload.batch.micro = 1;
    const ParamLayout layout(shape.workload.model, WorldSize{1});
    const auto units = weights(layout, at::full({layout.arena_size().value()}, 0.0, at::kFloat));
    Ledger ledger(at::kCPU);
    TextModel model(shape, layout, ledger);
    for (int unit = 0; unit < layout.num_units(); ++unit) {
      model.set_unit(unit, units[static_cast<std::size_t>(unit)]);
    }
    const Gpt gpt(shape, layout);
    ActivationBuffers buffers(gpt, ledger);
    const std::vector<std::int64_t> tokens = {5, 36, 0, 17, 17, 3, 9, 1, 30};
    at::Tensor row = at::empty({1, kSequence}, at::kLong);
    std::copy(tokens.begin(), tokens.end(), row.data_ptr<std::int64_t>());
    for (const std::int64_t length : {1, 4, 9}) {
      const at::Tensor expected =
          at::log_softmax(model.next_logits(std::span(tokens).first(static_cast<std::size_t>(length))), 0);
      for (const std::int64_t next : {0, 20, 36}) {
        const at::Tensor targets = at::full({1, kSequence}, -1, at::kLong);
        targets.data_ptr<std::int64_t>()[length - 1] = next;
        buffers.sums.zero_();
        gpt.embed(units[0], row, buffers.x(0));
        for (int unit = 1; unit <= layout.num_blocks(); ++unit) {
          gpt.forward_block(unit, units[static_cast<std::size_t>(unit)], buffers.x(unit - 1),
                            buffers.saved(1), buffers.ws, buffers.x(unit));
        }
        gpt.head_loss(gpt.head_matrix(units[static_cast<std::size_t>(gpt.head_unit())]), units.back(),
                      buffers.x(buffers.last()), targets, buffers.ws, buffers.result);
        EXPECT_NEAR(buffers.sums.data_ptr<double>()[0], -expected.data_ptr<float>()[next], 1e-4)
            << "token " << next << " after " << length;
      }
    }
  }
}

TEST(Sample, IsAFunctionOfModelAndSeed) {
  for (const bool tied : {true, false}) {
    const Sample sample = sample_on(1, 50, 7, tied).at(0);
    EXPECT_EQ(sample.prompt, (std::vector<TokenId>{0, 7, 14, 21})) << "half a row";
    EXPECT_EQ(sample.made.size(), 50u);
    for (const TokenId token : sample.made) EXPECT_LT(token, 30) << "has no text";
    EXPECT_EQ(sample_on(1, 50, 7, tied).at(0).made, sample.made);
    EXPECT_NE(sample_on(1, 50, 8, tied).at(0).made, sample.made);
    const Sample shorter = sample_on(1, 20, 7, tied).at(0);
    EXPECT_TRUE(std::equal(shorter.made.begin(), shorter.made.end(), sample.made.begin()));
  }
}

// From logits that are NaN or infinite no token can be drawn: the text ends there on all ranks, and the error
// names the first unit with such an output.
TEST(Sample, EndsWhereTheModelIsNotFinite) {
  for (const int world : {1, 3}) {
    for (const int unit : {0, 2, 4}) {
      for (const Sample& sample : sample_on(world, 20, 7, true, 1, unit)) {
        EXPECT_EQ(sample.nonfinite_unit, unit) << world;
        EXPECT_TRUE(sample.made.empty());
      }
    }
    for (const Sample& sample : sample_on(world, 5, 7)) EXPECT_EQ(sample.nonfinite_unit, std::nullopt);
  }
}

TEST(Sample, AtTemperatureZeroTheSeedDoesNotMatter) {
  const Sample sample = sample_on(1, 20, 7, true, 0).at(0);
  EXPECT_EQ(sample_on(1, 20, 8, true, 0).at(0).made, sample.made);
  EXPECT_EQ(sample_on(1, 20, 7, true, 1e-6).at(0).made, sample.made);
  EXPECT_NE(sample_on(1, 20, 7, true, 2).at(0).made, sample_on(1, 20, 7).at(0).made);
}

TEST(Sample, OfAShardedModelIsTheSameOnEveryRank) {
  const Sample alone = sample_on(1, 20, 7).at(0);
  for (const int world : {2, 3}) {
    for (const Sample& sample : sample_on(world, 20, 7)) {
      EXPECT_EQ(sample.prompt, alone.prompt);
      EXPECT_EQ(sample.made, alone.made);
    }
  }
}

TEST(Sample, RespectsTheCap) {
  const c10::InferenceMode inference;
  const RunShape shape = odd_shape(true);
  const ParamLayout layout(shape.workload.model, WorldSize{1});
  Ledger ledger(at::kCPU, {.device = Bytes(1000)});
  EXPECT_THROW(TextModel(shape, layout, ledger), InputError);
}

TEST(Sample, IsShownAsText) {
  const ByteTokenizer bytes;
  const Sample sample{{'I', 't', '\n', 0xc3}, {0xa4, 's', 27, '[', 0xff, ByteTokenizer::kEndOfText, '.'}};
  EXPECT_EQ(detail::format_sample(sample, bytes, 7, 0.5),
            "sample: 7 tokens (temperature 0.5, seed 7) after a prompt of 4\n"
            "It\n | \xc3\xa4s?[\xef\xbf\xbd.\n");
}

}  // namespace
}  // namespace sc
