// Tests every fused operation against ATen in fp32 on the same (rounded) inputs: fp32, bf16, fp16, shapes
// that divide by nothing convenient. Outputs start as NaN, so that an element that is not written shows.
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <array>
#include <memory>
#include <string>

#include "common/base/types.h"
#include "common/memory/stream_scratch.h"
#include "common/model/activation_plan.h"
#include "common/model/fused/attention.h"
#include "common/model/ops_cuda.h"
#include "tests/support/gpu.h"

namespace sc {
namespace {

using test::f32, test::poison, test::random, test::relative_error, test::rounding;

constexpr std::array kTypes = {at::kFloat, at::kBFloat16, at::kHalf};
// The kernels take multiples of 8 up to 2048. 20 is none, and goes to ATen. 64 is one GPT head, 200 fills no
// warp, 256 fills one exactly; the others are GPT-2's.
constexpr std::array<std::int64_t, 9> kWidths = {8, 20, 64, 200, 256, 768, 1024, 1600, 2048};
constexpr std::array<std::int64_t, 4> kRows = {1, 7, 131, 1037};
// So many rows take more than one turn of every block: a narrow LayerNorm takes 24 per block, and there are
// 132 blocks.
constexpr std::int64_t kManyRows = 7001, kNarrow = 256;

std::string label(at::ScalarType type, std::int64_t rows, std::int64_t width) {
  return std::string(at::toString(type)) + " " + std::to_string(rows) + " x " + std::to_string(width);
}

at::Tensor scalar(double value, at::ScalarType type) { return at::full({}, value, test::on_gpu(type)); }

class FusedOpsTest : public test::GpuTest {
 protected:
  void set_up() override {
    fused_ = make_ops(OpsBackend::fused, DeviceKind::cuda);
    reference_ = make_reference_ops();
  }
  template <class F>
  void for_each_shape(const F& f) {
    for (const at::ScalarType type : kTypes) {
      for (const std::int64_t width : kWidths) {
        for (const std::int64_t rows : kRows) {
          SCOPED_TRACE(label(type, rows, width));
          f(type, rows, width);
        }
        if (width > kNarrow) continue;
        SCOPED_TRACE(label(type, kManyRows, width));
        f(type, kManyRows, width);
      }
    }
  }
  std::unique_ptr<const Ops> fused_, reference_;
};

TEST_F(FusedOpsTest, LayerNorm) {
  for_each_shape([&](at::ScalarType type, std::int64_t n, std::int64_t d) {
    const at::Tensor x = random({n, d}, type) * 3 + 1, weight = random({d}, type), bias = random({d}, type);
    at::Tensor y = poison({n, d}, type), mean = poison({n}, at::kFloat), rstd = poison({n}, at::kFloat);
    at::Tensor y_ref = poison({n, d}, at::kFloat), mean_ref = mean.clone(), rstd_ref = rstd.clone();
    fused_->layer_norm(x, weight, bias, y, mean, rstd);
    reference_->layer_norm(f32(x), f32(weight), f32(bias), y_ref, mean_ref, rstd_ref);
    EXPECT_LE(relative_error(y, y_ref), rounding(type));
    EXPECT_LE(relative_error(mean, mean_ref), 2e-6);
    EXPECT_LE(relative_error(rstd, rstd_ref), 2e-6);
  });
}

struct NormSums {
  explicit NormSums(std::int64_t d)
      : sums{poison({d}, at::kFloat), poison({d}, at::kFloat), poison({d}, at::kFloat),
             poison({d}, at::kFloat)} {}
  LayerNormSums sums;
};

TEST_F(FusedOpsTest, LayerNormBackward) {
  for_each_shape([&](at::ScalarType type, std::int64_t n, std::int64_t d) {
    const at::Tensor x = random({n, d}, type) * 2 - 1, weight = random({d}, type),
                     grad_y = random({n, d}, type);
    const at::Tensor residual = random({n, d}, type);
    at::Tensor y = poison({n, d}, at::kFloat), mean = poison({n}, at::kFloat), rstd = poison({n}, at::kFloat);
    reference_->layer_norm(f32(x), f32(weight), f32(weight), y, mean, rstd);
    for (const int variant : {0, 1, 2}) {  // ln_f: neither; ln1: the residual; ln2: its columns too
      SCOPED_TRACE(variant);
      at::Tensor grad_x = poison({n, d}, type), want_x = poison({n, d}, at::kFloat);
      NormSums got(d), want(d);
      if (variant < 2) {
        for (LayerNormSums* s : {&got.sums, &want.sums}) s->residual = s->grad_x = at::Tensor();
      }
      const at::Tensor r = variant == 0 ? at::Tensor() : residual;
      fused_->layer_norm_backward(grad_y, x, mean, rstd, weight, r, grad_x, got.sums);
      reference_->layer_norm_backward(f32(grad_y), f32(x), mean, rstd, f32(weight), r.defined() ? f32(r) : r,
                                      want_x, want.sums);
      EXPECT_LE(relative_error(grad_x, want_x), 2 * rounding(type));
      // The sums are fp32 sums of unrounded values (ATen, for an odd width, sums rounded ones).
      const double tolerance = d % 8 == 0 ? 2e-5 : 8 * rounding(type);
      EXPECT_LE(relative_error(got.sums.weight, want.sums.weight), tolerance);
      EXPECT_LE(relative_error(got.sums.bias, want.sums.bias), tolerance);
      if (variant < 2) continue;
      EXPECT_LE(relative_error(got.sums.residual, want.sums.residual), tolerance);
      EXPECT_LE(relative_error(got.sums.grad_x, want.sums.grad_x), tolerance);
    }
  });
}

TEST_F(FusedOpsTest, GeluBothWays) {
  for_each_shape([&](at::ScalarType type, std::int64_t n, std::int64_t d) {
    const at::Tensor pre = random({n, d}, type) * 3, grad = random({n, d}, type);
    at::Tensor y = poison({n, d}, type), y_ref = poison({n, d}, at::kFloat);
    fused_->gelu(pre, y);
    reference_->gelu(f32(pre), y_ref);
    EXPECT_LE(relative_error(y, y_ref), rounding(type));
    at::Tensor got = grad.clone(), want = f32(grad), sums = poison({d}, at::kFloat),
               sums_ref = poison({d}, at::kFloat);
    fused_->gelu_backward(got, pre, sums);
    reference_->gelu_backward(want, f32(pre), sums_ref);
    EXPECT_LE(relative_error(got, want), rounding(type));
    EXPECT_LE(relative_error(sums, sums_ref), d % 8 == 0 ? 2e-5 : 8 * rounding(type));
  });
}

TEST_F(FusedOpsTest, GeluOfExtremes) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const at::Tensor x =
      at::tensor({nan, inf, 1e30F, -1e30F, 60.0F, -60.0F, 0.0F, -0.0F}, at::kFloat).to(at::kCUDA);
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    at::Tensor y = poison({1, 8}, type), grad = at::full({1, 8}, 1.0, test::on_gpu(type)),
               sums = poison({8}, at::kFloat);
    const at::Tensor pre = x.to(type).view({1, 8});
    fused_->gelu(pre, y);
    fused_->gelu_backward(grad, pre, sums);
    const at::Tensor value = f32(y).cpu().view({8}), slope = f32(grad).cpu().view({8});
    EXPECT_TRUE(std::isnan(value[0].item<float>()));
    EXPECT_FALSE(std::isfinite(value[1].item<float>()));
    EXPECT_EQ(value[3].item<float>(), 0.0F);
    EXPECT_EQ(value[6].item<float>(), 0.0F);
    EXPECT_TRUE(std::isnan(slope[0].item<float>()));
    EXPECT_EQ(slope[2].item<float>(), 1.0F);
    EXPECT_EQ(slope[3].item<float>(), 0.0F);
    EXPECT_EQ(slope[6].item<float>(), 0.5F);
  }
}

TEST_F(FusedOpsTest, ColumnSumsAndTheirStore) {
  for_each_shape([&](at::ScalarType type, std::int64_t n, std::int64_t d) {
    const at::Tensor m = random({n, 3 * d}, type);
    at::Tensor sums = poison({3 * d}, at::kFloat);
    fused_->column_sums(m, sums);
    const at::Tensor want = m.to(at::kDouble).sum(0);
    EXPECT_LE(relative_error(sums, want), 2e-6);
    at::Tensor grad = poison({3 * d}, type);
    const StoredSums stored[] = {{sums, grad}};
    fused_->store_sums(stored, Write::overwrite);
    EXPECT_TRUE(at::equal(grad, sums.to(type)));
    const at::Tensor before = random({3 * d}, type);
    // Vectors of different lengths, more of them than one launch takes.
    std::vector<StoredSums> many;
    for (std::int64_t i = 0; i < 11; ++i) {
      const std::int64_t size = std::max<std::int64_t>(1, 3 * d - i);
      many.push_back({sums.narrow(0, 0, size), before.narrow(0, 0, size).clone()});
    }
    fused_->store_sums(many, Write::accumulate);
    for (const StoredSums& v : many) {
      EXPECT_TRUE(at::equal(v.grad, (f32(before.narrow(0, 0, v.grad.numel())) + v.sums).to(type)));
    }
  });
}

struct Logits {
  std::int64_t rows, vocab, padded;
};

TEST_F(FusedOpsTest, CrossEntropy) {
  // Vocabularies: the widest of 16 bits that stays in registers, one that is read twice, GPT-2's, bytes',
  // tiny ones.
  for (const Logits& c : {Logits{1, 1, 128}, Logits{9, 97, 128}, Logits{700, 257, 384},
                          Logits{300, 50257, 50304}, Logits{5, 57300, 57344}, Logits{5, 70001, 70016}}) {
    const at::Tensor targets = at::randint(c.vocab, {c.rows}, test::on_gpu(at::kLong));
    targets[0] = c.vocab - 1;
    if (c.rows > 4) targets[4] = -1;
    for (const at::ScalarType type : kTypes) {
      SCOPED_TRACE(label(type, c.rows, c.padded) + " of which " + std::to_string(c.vocab));
      const at::Tensor logits = random({c.rows, c.padded}, type) * 4, scale = scalar(0.125, at::kFloat);
      at::Tensor grad = logits.clone(), loss = scalar(10, at::kDouble), tokens = scalar(1, at::kDouble);
      at::Tensor want = f32(logits).clone(), want_loss = loss.clone(), want_tokens = tokens.clone();
      fused_->cross_entropy(grad, targets, c.vocab, scale, loss, tokens);
      reference_->cross_entropy(want, targets, c.vocab, scale, want_loss, want_tokens);
      EXPECT_NEAR(loss.item<double>(), want_loss.item<double>(), 2e-6 * want_loss.item<double>());
      EXPECT_EQ(tokens.item<double>(), want_tokens.item<double>());
      EXPECT_LE(relative_error(grad, want), rounding(type));
      EXPECT_EQ(f32(grad.narrow(1, c.vocab, c.padded - c.vocab)).abs().sum().item<double>(), 0.0);
      if (c.rows > 4) {
        EXPECT_EQ(f32(grad[4]).abs().max().item<double>(), 0.0);
      }
      at::Tensor only = logits.clone(), again = scalar(10, at::kDouble), count = scalar(1, at::kDouble);
      fused_->cross_entropy(only, targets, c.vocab, {}, again, count);
      EXPECT_NEAR(again.item<double>(), loss.item<double>(), 1e-12 * loss.item<double>());
      EXPECT_EQ(count.item<double>(), tokens.item<double>());
    }
  }
}

TEST_F(FusedOpsTest, CrossEntropyOfExtremes) {
  const at::Tensor targets = at::tensor({1, 1, 1}, at::kLong).to(at::kCUDA);
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    at::Tensor logits = at::full({3, 128}, -3e38F, test::on_gpu(type)), loss = scalar(0, at::kDouble),
               tokens = scalar(0, at::kDouble);
    logits[0][1] = 3e38F;  // certain and right: no loss
    logits[1].fill_(1000.0);
    logits[2].fill_(-1000.0);
    fused_->cross_entropy(logits, targets, 97, scalar(1, at::kFloat), loss, tokens);
    EXPECT_NEAR(loss.item<double>(), 2 * std::log(97.0), 1e-5);
    EXPECT_LE(f32(logits[0]).abs().max().item<double>(), 1e-30);
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      for (const std::int64_t column : {0, 15, 96}) {
        at::Tensor m = random({3, 128}, type), sum = scalar(0, at::kDouble);
        m[1][column] = bad;
        fused_->cross_entropy(m, targets, 97, {}, sum, tokens);
        EXPECT_FALSE(std::isfinite(sum.item<double>())) << bad << " in column " << column;
      }
    }
  }
}

TEST_F(FusedOpsTest, EmbeddingBothWays) {
  constexpr std::int64_t kBatch = 3, kLength = 505, kContext = 520;
  for (const at::ScalarType type : kTypes) {
    for (const std::int64_t d : kWidths) {
      for (const std::int64_t vocab : {384, 50304}) {
        SCOPED_TRACE(label(type, vocab, d));
        at::Tensor tokens = at::randint(vocab, {kBatch, kLength}, test::on_gpu(at::kLong));
        tokens.select(0, 1).fill_(vocab - 1);                   // one token far more often than others
        tokens.select(0, 0).narrow(0, 0, 64).fill_(vocab - 2);  // the longest run that counts as short
        tokens.select(0, 0).narrow(0, 64, 65).fill_(vocab - 3);
        const at::Tensor wte = random({vocab, d}, type), wpe = random({kContext, d}, type);
        at::Tensor x = poison({kBatch, kLength, d}, type), want = poison({kBatch, kLength, d}, type);
        fused_->embed(tokens, wte, wpe, x);
        reference_->embed(tokens, wte, wpe, want);
        EXPECT_TRUE(at::equal(x, want));

        const at::Tensor grad = random({kBatch, kLength, d}, type);
        for (const at::ScalarType grad_type : {type, at::kFloat}) {
          for (const Write write : {Write::overwrite, Write::accumulate}) {
            const bool adds = write == Write::accumulate;
            const at::Tensor te = random({vocab, d}, grad_type), pe = random({kContext, d}, grad_type);
            at::Tensor got_te = adds ? te.clone() : poison({vocab, d}, grad_type), want_te = f32(te);
            at::Tensor got_pe = adds ? pe.clone() : poison({kContext, d}, grad_type), want_pe = f32(pe);
            const auto backward = [&](const Ops& ops, const at::Tensor& of, at::Tensor& te, at::Tensor& pe) {
              ops.embed_part_backward(tokens, of.view({-1, d}), {0, vocab}, te, write);
              ops.positions_backward(of.view({-1, d}), {0, kBatch * kLength}, kLength, pe, write);
            };
            backward(*fused_, grad, got_te, got_pe);
            backward(*reference_, f32(grad), want_te, want_pe);
            const double tolerance = d % 8 == 0 ? rounding(grad_type) : 8 * rounding(type);
            EXPECT_LE(relative_error(got_te, want_te), tolerance);
            EXPECT_LE(relative_error(got_pe, want_pe), tolerance);
          }
        }
      }
    }
  }
}

// Runs of tokens begin and end anywhere, and the vocabulary's first rows are another rank's.
TEST_F(FusedOpsTest, EmbeddingOfATensorRank) {
  constexpr std::int64_t kBatch = 3, kLength = 101, kContext = 110, kTokens = kBatch * kLength;
  for (const at::ScalarType type : kTypes) {
    for (const std::int64_t d : kWidths) {
      SCOPED_TRACE(label(type, kTokens, d));
      at::Tensor tokens = at::randint(384, {kBatch, kLength}, test::on_gpu(at::kLong));
      tokens.select(0, 1).fill_(5);  // most of them another rank's
      tokens.select(0, 2).fill_(200);
      const Range rows{128, 320};
      const at::Tensor wte = random({rows.size(), d}, type), grad = random({kTokens, d}, type);
      at::Tensor x = poison({kTokens, d}, type), want = poison({kTokens, d}, type);
      fused_->embed_part(tokens, wte, rows, x);
      reference_->embed_part(tokens, wte, rows, want);
      EXPECT_TRUE(at::equal(x, want));
      for (const Write write : {Write::overwrite, Write::accumulate}) {
        const at::Tensor te = random({rows.size(), d}, type), pe = random({kContext, d}, type);
        at::Tensor got = te.clone(), want_te = f32(te);
        fused_->embed_part_backward(tokens, grad, rows, got, write);
        reference_->embed_part_backward(tokens, f32(grad), rows, want_te, write);
        const double tolerance = d % 8 == 0 ? rounding(type) : 8 * rounding(type);
        EXPECT_LE(relative_error(got, want_te), tolerance);
        for (const Range run : {Range{0, kTokens}, Range{60, 202}, Range{101, 110}, Range{200, kTokens}}) {
          at::Tensor got_pe = pe.clone(), want_pe = f32(pe);
          const at::Tensor of_run = grad.narrow(0, run.begin, run.size()).contiguous();
          fused_->positions_backward(of_run, run, kLength, got_pe, write);
          reference_->positions_backward(f32(of_run), run, kLength, want_pe, write);
          EXPECT_LE(relative_error(got_pe, want_pe), tolerance);
        }
      }
    }
  }
}

// The sum is rounded once; then follows the norm of exactly what was rounded.
TEST_F(FusedOpsTest, ASumAndItsNorm) {
  for_each_shape([&](at::ScalarType type, std::int64_t n, std::int64_t d) {
    const AddNorm op{random({n, d}, type), random({d}, type),       random({n, d}, type),
                     poison({n, d}, type), random({d}, type),       random({d}, type),
                     poison({n, d}, type), poison({n}, at::kFloat), poison({n}, at::kFloat)};
    fused_->add_norm(op);
    const at::Tensor want = (f32(op.in) + f32(op.bias)) + f32(op.sum);
    EXPECT_LE(relative_error(op.x, want), d % 8 == 0 ? rounding(type) : 2 * rounding(type));
    at::Tensor y = poison({n, d}, type), mean = poison({n}, at::kFloat), rstd = poison({n}, at::kFloat);
    fused_->layer_norm(op.x, op.weight, op.norm_bias, y, mean, rstd);
    EXPECT_TRUE(at::equal(op.y, y) && at::equal(op.mean, mean) && at::equal(op.rstd, rstd));
  });
}

// Three ranks, of which the last has a single column that counts; the logits' maxima are far apart.
TEST_F(FusedOpsTest, SoftmaxOfTensorRanks) {
  constexpr std::int64_t kRanks = 3;
  for (const at::ScalarType type : kTypes) {
    for (const std::int64_t n : {7, 1037}) {
      for (const std::int64_t v : {64, 4160, 25152}) {
        SCOPED_TRACE(label(type, n, v));
        const std::int64_t vocab = 2 * v + 1;
        const at::Tensor logits = (random({n, kRanks * v}, type) - 0.5) * 20,
                         targets = at::randint(-1, vocab, {n}, test::on_gpu(at::kLong)),
                         scale = scalar(0.125, at::kFloat);
        at::Tensor whole = f32(logits).clone(), loss = scalar(0, at::kDouble),
                   counted = scalar(0, at::kDouble);
        reference_->cross_entropy(whole, targets, vocab, scale, loss, counted);
        const at::Tensor statistics = poison({kRanks, n, 2}, at::kFloat);
        const auto part_of = [&](const at::Tensor& of, std::int64_t rank) {
          return of.narrow(1, rank * v, v).contiguous();
        };
        const auto columns = [&](std::int64_t rank) {
          return Range{rank * v, std::min(vocab, (rank + 1) * v)};
        };
        for (std::int64_t rank = 0; rank < kRanks; ++rank) {
          at::Tensor mine = statistics.select(0, rank);
          fused_->softmax_part(part_of(logits, rank), columns(rank).size(), mine);
        }
        for (const bool gradient : {false, true}) {
          at::Tensor got_loss = scalar(0, at::kDouble), got_counted = scalar(0, at::kDouble);
          for (std::int64_t rank = 0; rank < kRanks; ++rank) {
            at::Tensor piece = part_of(logits, rank);
            fused_->softmax_gradient(piece, targets, columns(rank), statistics,
                                     gradient ? scale : at::Tensor(), got_loss, got_counted);
            if (!gradient) continue;
            const double difference = (f32(piece) - part_of(whole, rank)).abs().max().item<double>();
            EXPECT_LE(difference, rounding(type) * whole.abs().max().item<double>());
          }
          EXPECT_NEAR(got_loss.item<double>(), loss.item<double>(), 1e-5 * loss.item<double>());
          EXPECT_EQ(got_counted.item<double>(), counted.item<double>());
        }
      }
    }
  }
}

TEST_F(FusedOpsTest, ProductsWithMoreThanAProduct) {
  struct Shape {
    std::int64_t rows, in, out;
  };
  for (const Shape& s :
       {Shape{37, 64, 200}, Shape{131, 20, 36}, Shape{1037, 768, 768}, Shape{4099, 1024, 256}}) {
    for (const at::ScalarType type : kTypes) {
      SCOPED_TRACE(label(type, s.rows, s.out));
      const at::Tensor x = random({s.rows, s.in}, type), w = random({s.out, s.in}, type) * 0.1,
                       bias = random({s.out}, type);
      const at::Tensor residual = random({s.rows, s.out}, type), grad_y = random({s.rows, s.out}, type);
      const auto rows = [&] { return poison({s.rows, s.out}, type); };
      const auto rows_ref = [&] { return poison({s.rows, s.out}, at::kFloat); };
      at::Tensor y = rows(), want = rows_ref(), pre = rows(), want_pre = rows_ref();
      // The product is accumulated in fp32, in another order over `in` products.
      const double tolerance = rounding(type) * (type == at::kFloat ? 4 : 1);
      fused_->linear_residual(x, w, bias, residual, y);
      reference_->linear_residual(f32(x), f32(w), f32(bias), f32(residual), want);
      EXPECT_LE(relative_error(y, want), s.in % 8 == 0 ? tolerance : 2 * tolerance);
      fused_->linear_gelu(x, w, bias, pre, y);
      reference_->linear_gelu(f32(x), f32(w), f32(bias), want_pre, want);
      EXPECT_LE(relative_error(pre, want_pre), tolerance);
      EXPECT_LE(relative_error(y, want), 2 * tolerance);
      for (const Write write : {Write::overwrite, Write::accumulate}) {
        const at::Tensor before = random({s.out, s.in}, at::kFloat);
        at::Tensor grad = write == Write::accumulate ? before.clone() : poison({s.out, s.in}, at::kFloat);
        at::Tensor want_grad = before.clone();
        fused_->matmul_backward_weight(grad_y, x, grad, write);
        reference_->matmul_backward_weight(f32(grad_y), f32(x), want_grad, write);
        EXPECT_LE(relative_error(grad, want_grad), 2e-5);  // fp32, whatever the operands
      }
    }
  }
}

struct Heads {
  std::int64_t b, t, h, d;
};

TEST_F(FusedOpsTest, Attention) {
  for (const Heads& c : {Heads{2, 33, 3, 16}, Heads{1, 1, 2, 64}, Heads{3, 129, 2, 64}, Heads{2, 512, 4, 64},
                         Heads{1, 200, 5, 128}, Heads{1, 50, 2, 20}}) {
    for (const at::ScalarType type : kTypes) {
      SCOPED_TRACE(label(type, c.t, c.d));
      const at::Tensor qkv = random({c.b, c.t, 3, c.h, c.d}, type),
                       grad_out = random({c.b, c.t, c.h, c.d}, type);
      at::Tensor out = poison(grad_out.sizes(), type), lse = poison({c.b, c.h, c.t}, at::kFloat);
      at::Tensor out_ref = poison(grad_out.sizes(), at::kFloat), lse_ref = lse.clone();
      fused_->attention(unpacked(qkv), true, out, lse);
      reference_->attention(unpacked(f32(qkv)), true, out_ref, lse_ref);
      // Probabilities are rounded to the 16-bit type before they meet v, as in every flash attention.
      EXPECT_LE(relative_error(out, out_ref), 2 * rounding(type));
      EXPECT_LE(relative_error(lse, lse_ref), 1e-5);
      at::Tensor grad = poison(qkv.sizes(), type), grad_ref = poison(qkv.sizes(), at::kFloat);
      QueriesKeysValues grads = unpacked(grad), grads_ref = unpacked(grad_ref);
      fused_->attention_backward(grad_out, unpacked(qkv), true, out, lse, grads);
      reference_->attention_backward(f32(grad_out), unpacked(f32(qkv)), true, out_ref, lse_ref, grads_ref);
      EXPECT_LE(relative_error(grad, grad_ref), 6 * rounding(type));
    }
  }
}

// What a context rank's later hops compute: queries and keys of different lengths, some tokens of longer
// rows, merged into what others have left, in each pair of dtypes; gradients are summands.
TEST_F(FusedOpsTest, AttentionOfSomeTokensOfLongerRows) {
  constexpr std::int64_t kB = 2, kN = 130, kM = 65, kH = 3, kD = 64;
  for (const at::ScalarType type : kTypes) {
    for (const auto& [queries, keys] :
         {std::pair{Range{0, kN}, Range{0, kM}}, {Range{kM, kN}, Range{0, kN}}}) {
      SCOPED_TRACE(label(type, queries.begin, keys.end));
      const auto some = [](const at::Tensor& of, Range tokens) {
        return of.narrow(1, tokens.begin, tokens.size());
      };
      const at::Tensor q = some(random({kB, kN, 3, kH, kD}, type), queries).select(2, 0),
                       kv = some(random({kB, kN, 2, kH, kD}, type), keys),
                       att = random({kB, kN, kH, kD}, type),
                       grad_out = some(random({kB, kN, kH, kD}, type), queries),
                       before = random({kB, kH, kN}, at::kFloat);
      const QueriesKeysValues in{q, kv.select(2, 0), kv.select(2, 1)},
          in_ref{f32(in.q), f32(in.k), f32(in.v)};
      at::Tensor out = poison(in.q.sizes(), type), lse = poison({kB, kH, queries.size()}, at::kFloat);
      at::Tensor out_ref = poison(in.q.sizes(), at::kFloat), lse_ref = lse.clone();
      fused_->attention(in, /*causal=*/false, out, lse);
      reference_->attention(in_ref, /*causal=*/false, out_ref, lse_ref);
      EXPECT_LE(relative_error(out, out_ref), 2 * rounding(type));
      EXPECT_LE(relative_error(lse, lse_ref), 1e-5);
      at::Tensor merged, of_merged;
      for (const at::ScalarType others : {type, at::kFloat})
        for (const at::ScalarType sum : {at::kFloat, type}) {
          const at::Tensor from = some(att.to(others), queries);
          at::Tensor want = poison(in.q.sizes(), at::kFloat), lse_want = before.clone();
          merged = some(poison(att.sizes(), sum), queries), of_merged = before.clone();
          at::Tensor of_some = of_merged.narrow(2, queries.begin, queries.size()),
                     want_some = lse_want.narrow(2, queries.begin, queries.size());
          fused_->merge_attention(out, lse, from, merged, of_some);
          reference_->merge_attention(f32(out), lse, f32(from), want, want_some);
          EXPECT_LE(relative_error(merged, want), rounding(sum) + 2e-6);
          EXPECT_LE(relative_error(of_merged, lse_want), 1e-5);
        }
      const at::Tensor final_lse = of_merged.narrow(2, queries.begin, queries.size()).contiguous();
      at::Tensor grad_q = poison(in.q.sizes(), type), grad_kv = poison(kv.sizes(), type);
      at::Tensor q_ref = poison(in.q.sizes(), at::kFloat), kv_ref = poison(kv.sizes(), at::kFloat);
      QueriesKeysValues grads{grad_q, grad_kv.select(2, 0), grad_kv.select(2, 1)},
          grads_ref{q_ref, kv_ref.select(2, 0), kv_ref.select(2, 1)};
      fused_->attention_backward(grad_out, in, /*causal=*/false, merged, final_lse, grads);
      reference_->attention_backward(f32(grad_out), in_ref, /*causal=*/false, f32(merged), final_lse,
                                     grads_ref);
      EXPECT_LE(relative_error(grad_q, q_ref), 6 * rounding(type));
      EXPECT_LE(relative_error(grad_kv, kv_ref), 6 * rounding(type));
    }
  }
}

// If cuDNN has no kernel, attention computes as the reference does, bit for bit; on this GPU cuDNN has one
// whenever the rule says so.
TEST_F(FusedOpsTest, AttentionWithoutCudnnIsTheReferences) {
  const at::Tensor qkv = random({2, 129, 3, 2, 64}, at::kBFloat16),
                   grad_out = random({2, 129, 2, 64}, at::kBFloat16);
  const auto results_of = [&](const Ops& ops) {
    std::vector<at::Tensor> results = {poison(grad_out.sizes(), at::kBFloat16),
                                       poison({2, 2, 129}, at::kFloat), poison(qkv.sizes(), at::kBFloat16)};
    QueriesKeysValues grads = unpacked(results[2]);
    ops.attention(unpacked(qkv), true, results[0], results[1]);
    ops.attention_backward(grad_out, unpacked(qkv), true, results[0], results[1], grads);
    return results;
  };
  const auto want = results_of(*reference_);
  EXPECT_FALSE(at::equal(results_of(*fused_)[0], want[0])) << "cuDNN's would be compared with itself";
  for (const OpsBackend backend : {OpsBackend::aten, OpsBackend::fused, OpsBackend::deterministic}) {
    const auto found = results_of(*make_ops(backend, DeviceKind::cuda, /*cudnn_attention=*/false));
    for (std::size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(at::equal(found[i], want[i])) << i;
  }
}

TEST_F(FusedOpsTest, CudnnIsAskedForTheRunsAttention) {
  RunShape run;
  run.device = DeviceKind::cuda;
  run.workload.model = {.layers = 1, .heads = 4, .width = 256, .context = 256};
  run.workload.batch = {.sequence = 256, .global = 2, .micro = 2};
  for (const OpsBackend backend : {OpsBackend::aten, OpsBackend::fused, OpsBackend::deterministic}) {
    run.ops = backend;
    for (const DType dtype : {DType::bf16, DType::f16, DType::f32}) {
      run.workload.precision.dtype = dtype;
      EXPECT_FALSE(cudnn_lacks_attention(run));
    }
  }
  fused::Attention attention(/*deterministic=*/false);
  EXPECT_FALSE(attention.has(fused::AttentionShape::packed(DType::bf16, 1, 64, 1, 12)))
      << "heads that cuDNN takes nowhere";
}

// Runs one step's worth of every operation on fixed inputs; the outputs, in order.
class EveryOperation {
 public:
  EveryOperation(const Ops& ops, at::ScalarType type, std::int64_t n, std::int64_t d)
      : ops_(ops),
        x_(random({n, d}, type)),
        w_(random({d, d}, type)),
        v_(random({d}, type)),
        logits_(random({n, 50304}, type)),
        targets_(at::randint(-1, 50257, {n}, test::on_gpu(at::kLong))),
        tokens_(targets_.clamp_min(0).view({1, n})),
        scale_(scalar(0.01, at::kFloat)),
        wte_(random({50304, d}, type)),
        grad_w16_(random({d, d}, type)),
        qkv_(random({1, n, 3, d / 64, 64}, type)) {
    for (at::Tensor* t : {&y_, &pre_, &z_, &grad_}) *t = poison({n, d}, type);
    for (at::Tensor* t : {&mean_, &rstd_}) *t = poison({n}, at::kFloat);
    for (at::Tensor* t : {&sums_.weight, &sums_.bias, &sums_.residual, &sums_.grad_x, &columns_})
      *t = poison({d}, at::kFloat);
    grad_logits_ = poison(logits_.sizes(), type);
    grad_wte_ = poison(wte_.sizes(), type), grad_wpe_ = poison({n, d}, type),
    grad_w_ = poison({d, d}, at::kFloat);
    out_ = poison({1, n, d / 64, 64}, type), lse_ = poison({1, d / 64, n}, at::kFloat),
    grad_qkv_ = poison(qkv_.sizes(), type);
    grad_v_ = poison({d}, type);
    loss_ = scalar(0, at::kDouble), count_ = scalar(0, at::kDouble);
  }

  /// Runs everything but attention.
  void run() {
    at::Tensor rows = y_.view({1, y_.size(0), y_.size(1)});
    ops_.embed(tokens_, wte_, x_, rows);
    ops_.layer_norm(x_, v_, v_, y_, mean_, rstd_);
    ops_.layer_norm_backward(y_, x_, mean_, rstd_, v_, x_, grad_, sums_);
    ops_.linear_residual(y_, w_, v_, x_, z_);
    ops_.linear_gelu(y_, w_, v_, pre_, z_);
    ops_.gelu_backward(z_, pre_, columns_);
    ops_.matmul_backward_weight(z_, x_, grad_w_, Write::overwrite);
    grad_logits_.copy_(logits_);
    loss_.zero_(), count_.zero_();
    ops_.cross_entropy(grad_logits_, targets_, 50257, scale_, loss_, count_);
    ops_.embed_part_backward(tokens_, x_, {0, 50304}, grad_wte_, Write::overwrite);
    ops_.positions_backward(x_, {0, x_.size(0)}, x_.size(0), grad_wpe_, Write::overwrite);
  }
  /// Runs the products that run() leaves out, in `type`, and a vector's gradient.
  void run_products() {
    ops_.linear(y_, w_, v_, z_);
    ops_.matmul(y_, w_, z_);
    ops_.matmul_backward_input(z_, w_, pre_);
    for (const Write write : {Write::overwrite, Write::accumulate}) {
      ops_.matmul_backward_weight(z_, x_, grad_w16_, write);
      ops_.matmul_backward_weight(z_, x_, grad_w_, write);
      ops_.column_sums(z_, columns_);
      const StoredSums stored[] = {{columns_, grad_v_}};
      ops_.store_sums(stored, write);
    }
  }
  void run_attention() {
    QueriesKeysValues grads = unpacked(grad_qkv_);
    ops_.attention(unpacked(qkv_), true, out_, lse_);
    ops_.attention_backward(out_, unpacked(qkv_), true, out_, lse_, grads);
  }
  [[nodiscard]] std::vector<at::Tensor> results() const {
    std::vector<at::Tensor> all;
    for (const at::Tensor& t :
         {y_, mean_, rstd_, grad_, sums_.weight, sums_.bias, sums_.residual, sums_.grad_x, z_, pre_, columns_,
          grad_w_, grad_logits_, loss_, count_, grad_wte_, grad_wpe_}) {
      all.push_back(t.clone());
    }
    return all;
  }
  [[nodiscard]] std::vector<at::Tensor> attention_results() const {
    return {out_.clone(), lse_.clone(), grad_qkv_.clone()};
  }

 private:
  const Ops& ops_;
  at::Tensor x_, w_, v_, logits_, targets_, tokens_, scale_, wte_, grad_w16_, qkv_;
  at::Tensor y_, pre_, z_, grad_, mean_, rstd_, columns_, grad_logits_, grad_wte_, grad_wpe_, grad_w_, out_,
      lse_, grad_qkv_, grad_v_;
  at::Tensor loss_, count_;
  LayerNormSums sums_;
};

void expect_equal(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_TRUE(at::equal(a[i], b[i])) << "result " << i << ": " << f32(a[i]).sum().item<float>()
                                       << " instead of " << f32(b[i]).sum().item<float>() << " in sum";
  }
}

TEST_F(FusedOpsTest, BitEqualRunToRun) {
  for (const at::ScalarType type : kTypes) {
    SCOPED_TRACE(at::toString(type));
    EveryOperation all(*fused_, type, 4111, 768);
    all.run();
    const auto first = all.results();
    for (int again = 0; again < 3; ++again) {
      all.run();
      expect_equal(all.results(), first);
    }
  }
}

TEST_F(FusedOpsTest, DeterministicAttentionIsBitEqualRunToRun) {
  const std::unique_ptr<const Ops> deterministic = make_ops(OpsBackend::deterministic, DeviceKind::cuda);
  EveryOperation all(*deterministic, at::kBFloat16, 1024, 1024);
  all.run_attention();
  const auto first = all.attention_results();
  for (int again = 0; again < 5; ++again) {
    all.run_attention();
    expect_equal(all.attention_results(), first);
  }
}

// Attention's workspace follows a formula, for shapes of GPT-2 and small ones; the deterministic backward has
// none.
TEST_F(FusedOpsTest, AttentionsWorkspaceIsThePlansFormula) {
  fused::Attention attention(/*deterministic=*/false);
  for (const auto& [b, t, h, d] : {std::array<std::int64_t, 4>{16, 1024, 16, 64},
                                   {32, 1024, 12, 64},
                                   {8, 1024, 25, 64},
                                   {64, 512, 16, 64},
                                   {64, 1024, 8, 128}}) {
    RunShape run;
    run.workload.model = {.layers = 1, .heads = h, .width = h * d, .context = t, .vocab = 257, .tied = true};
    run.workload.batch = {.sequence = t, .global = b, .micro = b};
    run.workload.precision.dtype = DType::bf16;
    run.device = DeviceKind::cuda;
    run.ops = OpsBackend::fused;
    const std::int64_t planned = plan_stream_scratch_bytes(run).value();
    ASSERT_GT(planned, kStreamScratch.value()) << "nothing would be compared";
    constexpr std::int64_t kAlignment = 1024;
    const std::int64_t asked =
        attention.workspace_bytes(fused::AttentionShape::packed(DType::bf16, b, t, h, d));
    EXPECT_NEAR(static_cast<double>(asked), static_cast<double>(planned), kAlignment)
        << b << " " << t << " " << h;
  }
}

TEST_F(FusedOpsTest, CapturedInAGraphAndReplayed) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    SCOPED_TRACE(at::toString(type));
    EveryOperation all(*fused_, type, 4111, 768);
    all.run();
    const auto eager = all.results();
    test::replay([&] { all.run(); }, 3);
    expect_equal(all.results(), eager);
  }
  EveryOperation attention(*fused_, at::kBFloat16, 1024, 768);
  attention.run_attention();
  const auto eager = attention.attention_results();
  test::replay([&] { attention.run_attention(); }, 2);
  EXPECT_TRUE(at::equal(attention.attention_results()[0], eager[0]));
}

/// Checks that the second call of f(operations) allocates nothing: on both backends whose scratch a run's
/// plan says is none, with few rows and with so many that GELU is an epilogue.
template <class F>
void expect_no_allocation(const F& f) {
  for (const OpsBackend backend : {OpsBackend::fused, OpsBackend::deterministic}) {
    const std::unique_ptr<const Ops> ops = make_ops(backend, DeviceKind::cuda);
    for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
      for (const std::int64_t rows : {1024, 4111}) {
        SCOPED_TRACE(label(type, rows, 768));
        EveryOperation all(*ops, type, rows, 768);
        const auto step = [&] { f(all); };
        step();
        const std::int64_t before = test::allocations();
        step();
        EXPECT_EQ(test::allocations(), before);
      }
    }
  }
}

TEST_F(FusedOpsTest, AllocatesNothingAfterTheFirstStep) {
  expect_no_allocation([](EveryOperation& all) { all.run(); });
}

TEST_F(FusedOpsTest, ProductsAllocateNothingAfterTheFirstStep) {
  expect_no_allocation([](EveryOperation& all) { all.run_products(); });
}

TEST_F(FusedOpsTest, AttentionAllocatesNothingAfterTheFirstStep) {
  expect_no_allocation([](EveryOperation& all) { all.run_attention(); });
}

}  // namespace
}  // namespace sc
