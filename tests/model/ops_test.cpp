// Tests every operation of the CPU against the reference, against formulas in fp64, and against itself
// elsewhere in memory.
#include "common/model/ops.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <numbers>
#include <utility>

#include "tests/model/model_fixture.h"

namespace sc {
namespace {

class OpsTest : public ::testing::Test {
 protected:
  OpsTest() { at::set_num_threads(1); }
  const std::unique_ptr<const Ops> cpu_ = make_ops(OpsBackend::aten, DeviceKind::cpu);
  const std::unique_ptr<const Ops> reference_ = make_reference_ops();
};

at::Tensor random(at::IntArrayRef shape) { return at::randn(shape); }

// A copy of `t` that begins `offset` elements into a larger vector.
at::Tensor moved(const at::Tensor& t, std::int64_t offset) {
  at::Tensor other = at::zeros({t.numel() + offset}, t.options());
  at::Tensor view = other.narrow(0, offset, t.numel()).view(t.sizes());
  view.copy_(t);
  return view;
}

double gelu_exact(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
}

TEST_F(OpsTest, GeluFollowsItsFormula) {
  const at::Tensor x = at::linspace(-12, 12, 24001);
  at::Tensor y = at::empty_like(x), grad = at::full_like(x, 1.0), sums = at::empty({24001});
  cpu_->gelu(x, y);
  at::Tensor rows = grad.view({1, -1});
  cpu_->gelu_backward(rows, x.view({1, -1}), sums);
  EXPECT_TRUE(at::equal(sums, grad));
  for (std::int64_t i = 0; i < x.numel(); i += 7) {
    const double v = x[i].item<double>(), h = 1e-6;
    EXPECT_NEAR(y[i].item<double>(), gelu_exact(v), 3e-7 * std::max(1.0, std::abs(v)));
    EXPECT_NEAR(grad[i].item<double>(), (gelu_exact(v + h) - gelu_exact(v - h)) / (2 * h), 2e-6);
  }
}

// A non-finite value must reach the loss, so that a run stops on it.
TEST_F(OpsTest, NonFiniteValuesStaySo) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const at::Tensor x = at::tensor({nan, inf, -inf, 0.0F, 1e30F, -1e30F}, at::kFloat);
  at::Tensor y = at::empty_like(x);
  cpu_->gelu(x, y);
  EXPECT_TRUE(std::isnan(y[0].item<float>()));
  EXPECT_FALSE(std::isfinite(y[1].item<float>()));
  EXPECT_EQ(y[3].item<float>(), 0.0F);
  for (const float bad : {nan, inf}) {
    for (const std::int64_t column : {0, 15, 16, 96}) {  // lanes and tail of the row loop
      at::Tensor logits = random({2, 128}), loss = at::zeros({}, at::kDouble),
                 tokens = at::zeros({}, at::kDouble);
      logits[1][column] = bad;
      cpu_->cross_entropy(logits, at::tensor({3, 5}, at::kLong), 97, {}, loss, tokens);
      EXPECT_FALSE(std::isfinite(loss.item<double>())) << bad << " in column " << column;
    }
  }
}

TEST_F(OpsTest, CrossEntropyInFp64) {
  for (const std::int64_t vocab : {1, 5, 16, 97, 128, 257}) {
    const std::int64_t padded = round_up(vocab, 128), rows = 9;
    const at::Tensor logits = random({rows, padded}) * 8;
    const at::Tensor targets = some_tokens(rows, 1, vocab, 3).view({-1});
    targets[4] = -1;
    const at::Tensor scale = at::full({}, 0.125, at::kFloat);
    for (const Ops* ops : {cpu_.get(), reference_.get()}) {
      at::Tensor grad = logits.clone(), loss = at::full({}, 10.0, at::kDouble),
                 tokens = at::full({}, 1.0, at::kDouble);
      ops->cross_entropy(grad, targets, vocab, scale, loss, tokens);
      const at::Tensor log_p = logits.narrow(1, 0, vocab).to(at::kDouble).log_softmax(1);
      const at::Tensor onehot = at::zeros_like(log_p);
      double expected = 10.0;
      for (std::int64_t r = 0; r < rows; ++r) {
        if (r == 4) continue;
        expected -= log_p[r][targets[r].item<std::int64_t>()].item<double>();
        onehot[r][targets[r].item<std::int64_t>()] = 1.0;
      }
      const at::Tensor want = (log_p.exp() - onehot) * 0.125;
      want[4].zero_();
      EXPECT_NEAR(loss.item<double>(), expected, 2e-6 * expected);
      EXPECT_EQ(tokens.item<double>(), 9.0);
      EXPECT_LE((grad.narrow(1, 0, vocab) - want).abs().max().item<double>(), 2e-7) << vocab;
      EXPECT_EQ(grad.narrow(1, vocab, padded - vocab).abs().sum().item<double>(), 0.0);
      EXPECT_EQ(grad[4].abs().max().item<double>(), 0.0);
    }
  }
}

TEST_F(OpsTest, CrossEntropyOfExtremeLogits) {
  at::Tensor logits = at::full({3, 128}, -3e38F), loss = at::zeros({}, at::kDouble),
             tokens = at::zeros({}, at::kDouble);
  logits[0][1] = 3e38F;  // certain and right: no loss
  logits[1].fill_(1000.0);
  logits[2].fill_(-1000.0);
  cpu_->cross_entropy(logits, at::tensor({1, 1, 1}, at::kLong), 97, at::full({}, 1.0, at::kFloat), loss,
                      tokens);
  EXPECT_NEAR(loss.item<double>(), 2 * std::log(97.0), 1e-5);
  EXPECT_LE(logits[0].abs().max().item<double>(), 1e-30);
}

TEST_F(OpsTest, AttentionAgainstTheWrittenOutForm) {
  struct Case {
    std::int64_t b, t, h, d;
  };
  for (const Case& c : {Case{2, 33, 3, 16}, Case{1, 256, 2, 32}, Case{1, 200, 1, 7}, Case{2, 1, 2, 8}}) {
    const at::Tensor qkv = random({c.b, c.t, 3, c.h, c.d}), grad = random({c.b, c.t, c.h, c.d});
    at::Tensor out[2], lse[2], grad_qkv[2];
    const Ops* ops[] = {cpu_.get(), reference_.get()};
    for (int i = 0; i < 2; ++i) {
      out[i] = at::empty_like(grad);
      lse[i] = at::empty({c.b, c.h, c.t});
      grad_qkv[i] = at::empty_like(qkv);
      QueriesKeysValues grads = unpacked(grad_qkv[i]);
      ops[i]->attention(unpacked(qkv), true, out[i], lse[i]);
      ops[i]->attention_backward(grad, unpacked(qkv), true, out[i], lse[i], grads);
    }
    EXPECT_LE(relative_error(out[0], out[1]), 2e-6);
    EXPECT_LE(relative_error(lse[0], lse[1]), 2e-6);
    EXPECT_LE(relative_error(grad_qkv[0], grad_qkv[1]), 5e-6);
  }
}

// The first token sees itself alone; a later token changes nothing before it.
TEST_F(OpsTest, AttentionIsCausal) {
  const at::Tensor qkv = random({1, 40, 3, 2, 8});
  const at::Tensor changed = qkv.clone();
  changed.select(1, 20).add_(1.0);
  for (const Ops* ops : {cpu_.get(), reference_.get()}) {
    at::Tensor a = at::empty({1, 40, 2, 8}), b = at::empty_like(a), lse = at::empty({1, 2, 40});
    ops->attention(unpacked(qkv), true, a, lse);
    ops->attention(unpacked(changed), true, b, lse);
    EXPECT_LE(relative_error(a.select(1, 0), qkv.select(1, 0).select(1, 2)), 1e-6);
    EXPECT_TRUE(at::equal(a.narrow(1, 0, 20), b.narrow(1, 0, 20)));
    EXPECT_GT((a - b).narrow(1, 20, 20).abs().min().item<double>(), 0.0);
  }
}

// Keys in two parts: each part's softmax, merged by the sum of their exponentials, is the whole one's; with
// the whole one's out and lse the parts' gradients are summands of it.
TEST_F(OpsTest, AttentionOfAPartOfTheKeysIsASummand) {
  constexpr std::int64_t kB = 2, kT = 12, kS = 20, kH = 2, kD = 8;
  const at::Tensor q = random({kB, kT, kH, kD}), keys = random({kB, kS, 2, kH, kD}),
                   grad = random({kB, kT, kH, kD});
  const auto part = [&](const at::Tensor& of, std::int64_t begin, std::int64_t n) {
    const at::Tensor some = of.narrow(1, begin, n);
    return QueriesKeysValues{q, some.select(2, 0), some.select(2, 1)};
  };
  for (const Ops* ops : {cpu_.get(), reference_.get()}) {
    const auto computed = [&](const QueriesKeysValues& in) {
      std::pair<at::Tensor, at::Tensor> result{at::empty({kB, kT, kH, kD}), at::empty({kB, kH, kT})};
      ops->attention(in, /*causal=*/false, result.first, result.second);
      return result;
    };
    const auto [out, lse] = computed(part(keys, 0, kS));
    const auto [out1, lse1] = computed(part(keys, 0, 7));
    const auto [out2, lse2] = computed(part(keys, 7, kS - 7));
    at::Tensor sum = at::empty_like(out), lse_of_sum = lse1.clone();
    ops->merge_attention(out2, lse2, out1, sum, lse_of_sum);
    EXPECT_LE(relative_error(lse_of_sum, lse), 2e-6);
    EXPECT_LE(relative_error(sum, out), 2e-6);

    const auto gradients = [&](std::int64_t begin, std::int64_t n) {
      QueriesKeysValues grads{at::empty_like(q), at::empty({kB, n, kH, kD}), at::empty({kB, n, kH, kD})};
      ops->attention_backward(grad, part(keys, begin, n), /*causal=*/false, out, lse, grads);
      return grads;
    };
    const QueriesKeysValues whole = gradients(0, kS), one = gradients(0, 7), two = gradients(7, kS - 7);
    EXPECT_LE(relative_error(one.q + two.q, whole.q), 5e-6);
    EXPECT_LE(relative_error(at::cat({one.k, two.k}, 1), whole.k), 5e-6);
    EXPECT_LE(relative_error(at::cat({one.v, two.v}, 1), whole.v), 5e-6);
  }
}

// A context rank's second chunk is some tokens of each row: where they lie changes no bit, of queries, of
// what is merged into, and of what backward reads.
TEST_F(OpsTest, TokensMayBeSomeOfLongerRows) {
  constexpr std::int64_t kB = 2, kN = 12, kM = 6, kH = 2, kD = 8;
  const auto second = [](const at::Tensor& of) { return of.narrow(1, kM, kN - kM); };
  const at::Tensor qkv = random({kB, kN, 3, kH, kD}), kv = random({kB, kN, 2, kH, kD}),
                   att = random({kB, kN, kH, kD}), grad = random({kB, kN, kH, kD}),
                   lse = random({kB, kH, kN});
  for (const Ops* ops : {cpu_.get(), reference_.get()}) {
    const auto computed = [&](const auto& lying) {
      const QueriesKeysValues in{lying(second(qkv)).select(2, 0), kv.select(2, 0), kv.select(2, 1)};
      at::Tensor out = at::empty({kB, kM, kH, kD}), here = at::empty({kB, kH, kM}),
                 sum = lying(second(att.clone())), of_sum = lying(lse.clone().narrow(2, kM, kM));
      ops->attention(in, /*causal=*/false, out, here);
      ops->merge_attention(out, here, sum, sum, of_sum);
      QueriesKeysValues grads{at::empty_like(out), at::empty({kB, kN, kH, kD}), at::empty({kB, kN, kH, kD})};
      ops->attention_backward(lying(second(grad)), in, /*causal=*/false, sum, of_sum.contiguous(), grads);
      return std::vector<at::Tensor>{sum, of_sum, grads.q, grads.k, grads.v};
    };
    const auto views = computed([](const at::Tensor&t) { return t; }),
               copies = computed([](const at::Tensor&t) { return t.contiguous(); });
    for (std::size_t i = 0; i < views.size(); ++i) EXPECT_TRUE(at::equal(views[i], copies[i])) << i;
  }
}

// exp(200) is no fp32 number: the part of the larger scores is the sum, whichever comes first.
TEST_F(OpsTest, MergedPartsSurviveLargeScores) {
  for (const double first : {-200.0, 200.0}) {
    at::Tensor sum = at::full({1, 1, 1, 4}, first), lse_of_sum = at::full({1, 1, 1}, first);
    cpu_->merge_attention(at::full({1, 1, 1, 4}, -first), at::full({1, 1, 1}, -first), sum, sum, lse_of_sum);
    EXPECT_TRUE(at::equal(sum, at::full({1, 1, 1, 4}, 200.0)));
    EXPECT_TRUE(at::equal(lse_of_sum, at::full({1, 1, 1}, 200.0)));
  }
}

TEST_F(OpsTest, LayerNormAndItsSums) {
  const std::int64_t n = 37, d = 45;
  const at::Tensor x = random({n, d}) * 3 + 1, weight = random({d}), bias = random({d}),
                   grad_y = random({n, d});
  const at::Tensor residual = random({n, d});
  at::Tensor y = at::empty({n, d}), mean = at::empty({n}), rstd = at::empty({n}), grad_x = at::empty({n, d});
  cpu_->layer_norm(x, weight, bias, y, mean, rstd);
  const at::Tensor xd = x.to(at::kDouble), gd = grad_y.to(at::kDouble);
  const at::Tensor m = xd.mean(1, true), centred = xd - m;
  const at::Tensor r = ((centred * centred).mean(1, true) + 1e-5).rsqrt(), normal = centred * r;
  EXPECT_LE(relative_error(y, normal * weight + bias), 1e-6);
  EXPECT_LE(relative_error(mean, m.view({-1})), 1e-6);
  EXPECT_LE(relative_error(rstd, r.view({-1})), 1e-6);

  LayerNormSums sums{at::empty({d}), at::empty({d}), at::empty({d}), at::empty({d})};
  cpu_->layer_norm_backward(grad_y, x, mean, rstd, weight, residual, grad_x, sums);
  const at::Tensor gw = gd * weight;
  const at::Tensor want = (gw - gw.mean(1, true) - normal * (gw * normal).mean(1, true)) * r + residual;
  EXPECT_LE(relative_error(grad_x, want), 2e-6);
  EXPECT_LE(relative_error(sums.weight, (gd * normal).sum(0)), 2e-6);
  EXPECT_LE(relative_error(sums.bias, gd.sum(0)), 2e-6);
  EXPECT_LE(relative_error(sums.residual, residual.to(at::kDouble).sum(0)), 2e-6);
  EXPECT_LE(relative_error(sums.grad_x, want.sum(0)), 5e-6);
  sums.residual = at::Tensor();  // nothing passes the norm: ln_f
  cpu_->layer_norm_backward(grad_y, x, mean, rstd, weight, {}, grad_x, sums);
  EXPECT_LE(relative_error(grad_x, want - residual), 2e-6);
}

TEST_F(OpsTest, EmbeddingBothWays) {
  const at::Tensor wte = random({128, 16}), wpe = random({12, 16});
  const at::Tensor tokens = at::tensor({5, 5, 0, 99, 5, 7, 7, 0, 1, 5}, at::kLong).view({2, 5});
  at::Tensor x = at::empty({2, 5, 16});
  cpu_->embed(tokens, wte, wpe, x);
  EXPECT_TRUE(at::equal(x[1][2], wte[0] + wpe[2]));

  const at::Tensor grad = random({2, 5, 16});
  at::Tensor grad_wte = at::full({128, 16}, 2.0), grad_wpe = at::full({12, 16}, 3.0);
  const auto backward = [&](Write write) {
    cpu_->embed_part_backward(tokens, grad.view({10, 16}), {0, 128}, grad_wte, write);
    cpu_->positions_backward(grad.view({10, 16}), {0, 10}, 5, grad_wpe, write);
  };
  backward(Write::accumulate);
  // Rows are added in token order to what is there.
  EXPECT_TRUE(at::equal(grad_wte[5], ((grad[0][0] + 2.0) + grad[0][1]) + grad[0][4] + grad[1][4]));
  EXPECT_TRUE(at::equal(grad_wte[6], at::full({16}, 2.0)));
  EXPECT_TRUE(at::equal(grad_wpe[3], (grad[0][3] + 3.0) + grad[1][3]));
  EXPECT_TRUE(at::equal(grad_wpe[5], at::full({16}, 3.0)));
  backward(Write::overwrite);
  EXPECT_TRUE(at::equal(grad_wte[99], grad[0][3]));
  EXPECT_TRUE(at::equal(grad_wte[6], at::zeros({16})));
  EXPECT_TRUE(at::equal(grad_wpe[3], grad[0][3] + grad[1][3]));
  EXPECT_TRUE(at::equal(grad_wpe[11], at::zeros({16})));
}

// A flat vector's tensors may start anywhere; results must not depend on it.
TEST_F(OpsTest, PlaceInMemoryChangesNoBit) {
  const std::int64_t n = 66, in = 48, out = 144;
  const at::Tensor x = random({n, in}), w = random({out, in}), bias = random({out}),
                   grad_y = random({n, out});
  std::array<at::Tensor, 2> y, grad_x, grad_w, gelu_y, grad_gelu, sums;
  for (int i = 0; i < 2; ++i) {
    const std::int64_t offset = i == 0 ? 0 : 3;
    y[i] = moved(at::zeros({n, out}), offset);
    grad_x[i] = moved(at::zeros({n, in}), offset);
    grad_w[i] = moved(w, offset);
    gelu_y[i] = moved(at::zeros({n, out}), offset);
    grad_gelu[i] = moved(grad_y, offset);
    sums[i] = moved(at::zeros({out}), offset);
    const at::Tensor x_i = moved(x, 2 * offset), w_i = moved(w, offset + 1), grad_i = moved(grad_y, offset);
    cpu_->linear_gelu(x_i, w_i, moved(bias, offset), y[i], gelu_y[i]);
    cpu_->matmul_backward_input(grad_i, w_i, grad_x[i]);
    cpu_->matmul_backward_weight(grad_i, x_i, grad_w[i], Write::accumulate);
    cpu_->gelu_backward(grad_gelu[i], y[i], sums[i]);
  }
  for (const auto& both : {y, gelu_y, grad_x, grad_w, grad_gelu, sums})
    EXPECT_TRUE(at::equal(both[0], both[1]));
}

}  // namespace
}  // namespace sc
