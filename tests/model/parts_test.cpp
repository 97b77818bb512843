// Tests that the results of tensor ranks, put together, are those of one device: operations on parts of a
// vocabulary and runs of tokens, and the initial weights.
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include "common/model/gpt.h"
#include "common/model/unit_views.h"
#include "tests/model/model_fixture.h"

namespace sc {
namespace {

/// A tensor of numbers in about (-1, 1).
at::Tensor some(std::vector<std::int64_t> shape, std::uint64_t seed) {
  at::Tensor t = at::empty(shape, at::kFloat);
  auto* data = t.mutable_data_ptr<float>();
  std::uint64_t state = seed * 2 + 1;
  for (std::int64_t i = 0; i < t.numel(); ++i) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    data[i] = static_cast<float>(static_cast<double>(state >> 40) / (1 << 23) - 1);
  }
  return t;
}

class PartOps : public ::testing::TestWithParam<bool> {
 protected:
  const c10::InferenceMode inference_;
  const std::shared_ptr<const Ops> ops_ = GetParam() ? std::shared_ptr<const Ops>(make_reference_ops())
                                                     : make_ops(OpsBackend::aten, DeviceKind::cpu);
};

constexpr std::int64_t kRows = 7, kVocab = 257, kPadded = 384;
const std::vector<Range> kParts = {{0, 64}, {64, 192}, {192, 256}, {256, 320}, {320, 384}};
Range real(Range part) { return {std::min(part.begin, kVocab), std::min(part.end, kVocab)}; }

// With logits 40 times as large, one rank's exponentials vanish beside another's. Some rows have no target,
// and some targets lie at a border of parts; one rank has a single real column, and one has only padding.
TEST_P(PartOps, ASoftmaxInPartsIsTheWholeOne) {
  const at::Tensor targets = at::empty({kRows}, at::kLong), scale = at::full({}, 0.125, at::kFloat);
  const std::int64_t wanted[] = {0, 63, 64, -1, 256, 191, 200};
  std::copy(std::begin(wanted), std::end(wanted), targets.mutable_data_ptr<std::int64_t>());
  for (const double size : {1.0, 40.0}) {
    const at::Tensor logits = some({kRows, kPadded}, 3) * size;
    at::Tensor whole = logits.clone(), loss = at::zeros({}, at::kDouble), tokens = at::zeros({}, at::kDouble);
    ops_->cross_entropy(whole, targets, kVocab, scale, loss, tokens);
    const auto parts = static_cast<std::int64_t>(kParts.size());
    const at::Tensor statistics = at::zeros({parts, kRows, 2}, at::kFloat);
    std::vector<at::Tensor> pieces;
    for (std::int64_t i = 0; i < parts; ++i) {
      const Range part = kParts[static_cast<std::size_t>(i)];
      pieces.push_back(logits.narrow(1, part.begin, part.size()).contiguous());
      at::Tensor mine = statistics.select(0, i);
      ops_->softmax_part(pieces.back(), real(part).size(), mine);
      EXPECT_TRUE(pieces.back().equal(logits.narrow(1, part.begin, part.size()))) << "logits stay";
    }
    for (const bool gradient : {false, true}) {
      at::Tensor loss_in_parts = at::zeros({}, at::kDouble), counted = at::zeros({}, at::kDouble);
      for (std::size_t i = 0; i < kParts.size(); ++i)
        ops_->softmax_gradient(pieces[i], targets, real(kParts[i]), statistics,
                               gradient ? scale : at::Tensor(), loss_in_parts, counted);
      EXPECT_NEAR(loss_in_parts.item<double>(), loss.item<double>(), 1e-5 * size);
      EXPECT_EQ(counted.item<double>(), tokens.item<double>());
    }
    EXPECT_LT((at::cat(pieces, 1) - whole).abs().max().item<float>(), 1e-6);
  }
}

TEST_P(PartOps, AnEmbeddingInPartsIsTheWholeOne) {
  constexpr std::int64_t B = 3, T = 8, d = 5, context = 10;
  const at::Tensor tokens = some_tokens(B, T, kVocab, 4), wte = some({kPadded, d}, 5),
                   wpe = some({context, d}, 6);
  at::Tensor whole = at::empty({B, T, d}, at::kFloat), sum = at::zeros({B * T, d}, at::kFloat);
  ops_->embed(tokens, wte, wpe, whole);
  for (const Range part : kParts) {
    at::Tensor rows = at::full({B * T, d}, 9, at::kFloat);
    ops_->embed_part(tokens, wte.narrow(0, part.begin, part.size()), part, rows);
    sum.add_(rows);
  }
  for (const Range run : {Range{0, B * T}, Range{6, 12}, Range{8, 9}, Range{3, 24}}) {
    at::Tensor x = at::empty({run.size(), d}, at::kFloat);
    ops_->add_positions(sum.narrow(0, run.begin, run.size()), wpe, run, T, x);
    EXPECT_TRUE(x.equal(whole.view({B * T, d}).narrow(0, run.begin, run.size())));
  }
}

TEST_P(PartOps, AnEmbeddingsGradientInPartsIsTheWholeOne) {
  constexpr std::int64_t B = 3, T = 8, d = 5, context = 10;
  const at::Tensor tokens = some_tokens(B, T, 40, 4), grad = some({B * T, d}, 7);
  for (const Write write : {Write::overwrite, Write::accumulate}) {
    at::Tensor wte = some({kPadded, d}, 8), wpe = some({context, d}, 9);
    std::vector<at::Tensor> parts;
    for (const Range part : kParts) {
      at::Tensor rows = wte.narrow(0, part.begin, part.size()).clone();
      ops_->embed_part_backward(tokens, grad, part, rows, write);
      parts.push_back(rows);
    }
    at::Tensor positions = write == Write::overwrite ? at::zeros_like(wpe) : wpe.clone();
    for (const Range run : {Range{0, 6}, Range{6, 17}, Range{17, B * T}}) {
      at::Tensor of_run = at::full({context, d}, 9, at::kFloat);
      ops_->positions_backward(grad.narrow(0, run.begin, run.size()), run, T, of_run, Write::overwrite);
      positions.add_(of_run);
    }
    ops_->embed_part_backward(tokens, grad, {0, kPadded}, wte, write);
    ops_->positions_backward(grad, {0, B * T}, T, wpe, write);
    EXPECT_TRUE(at::cat(parts, 0).equal(wte)) << "in token order on either side";
    EXPECT_LT((positions - wpe).abs().max().item<float>(), 1e-6);
  }
}

TEST_P(PartOps, ASumIsAddedBehindItsBiasAndNormed) {
  const auto empty = [](std::vector<std::int64_t> shape) { return at::empty(shape, at::kFloat); };
  const AddNorm op{some({4, 6}, 1), some({6}, 2),  some({4, 6}, 3), empty({4, 6}), some({6}, 4),
                   some({6}, 5),    empty({4, 6}), empty({4}),      empty({4})};
  ops_->add_norm(op);
  EXPECT_TRUE(op.x.equal((op.in + op.bias) + op.sum));
  at::Tensor y = empty({4, 6}), mean = empty({4}), rstd = empty({4});
  ops_->layer_norm(op.x, op.weight, op.norm_bias, y, mean, rstd);
  EXPECT_TRUE(op.y.equal(y) && op.mean.equal(mean) && op.rstd.equal(rstd));
}

INSTANTIATE_TEST_SUITE_P(Of, PartOps, ::testing::Bool(),
                         [](const auto& of) { return of.param ? "Reference" : "Cpu"; });

// Initial weights are a function of seed, name and element of the whole tensor, whatever the cut.
TEST(Init, TensorRanksMakePartsOfTheSameModel) {
  const c10::InferenceMode inference;
  const GptConfig config{.layers = 2, .heads = 5, .width = 45, .context = 17, .vocab = 257, .tied = false};
  const ParamLayout whole(config, WorldSize{1});
  const auto arena = [](std::int64_t size) { return at::full({size}, NAN, at::kFloat); };
  const auto model = unit_views(whole, arena(whole.arena_size().value()));
  for (int unit = 0; unit < whole.num_units(); ++unit) init_unit(whole, unit, 3, model[unit]);
  for (const int ranks : {2, 3, 5}) {
    for (int rank = 0; rank < ranks; ++rank) {
      const ParamLayout layout(config, WorldSize{1}, TensorCut{rank, ranks});
      const auto mine = unit_views(layout, arena(layout.arena_size(Segment::sharded).value()),
                                   arena(layout.arena_size(Segment::whole).value()));
      for (int unit = 0; unit < layout.num_units(); ++unit) {
        init_unit(layout, unit, 3, mine[unit]);
        for (const ParamTensor& t : layout.unit(unit).tensors) {
          const std::int64_t offset = whole.find(unit, t.name)->offset;
          for_each_run(t, {0, t.numel()}, [&](Range here, std::int64_t at) {
            EXPECT_TRUE(mine[unit]
                            .segment(t.segment)
                            .narrow(0, t.offset + here.begin, here.size())
                            .equal(model[unit].sharded.narrow(0, offset + at, here.size())))
                << t.name << " of rank " << rank << " of " << ranks;
          });
        }
      }
    }
  }
}

}  // namespace
}  // namespace sc
