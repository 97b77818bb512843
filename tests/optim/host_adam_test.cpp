#include "common/optim/host_adam.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "common/base/check.h"
#include "common/base/host_pool.h"
#include "common/memory/ledger.h"
#include "tests/optim/hyper.h"

namespace sc {
namespace {

using test::kHyper;

constexpr std::int64_t kBefore = 3, kAfter = 5;  // elements around the vectors that nobody may write
constexpr float kAround = 77.0F;

const AdamWFactors kFactors = adamw_factors(kHyper, 1e-2F, 3, 0.7F);

/// One combination of dtypes; param16 f32 means none.
struct Kind {
  DType grad, param16;
  Store store;
  bool in_place = true;
};
std::string text_of(const Kind& kind) {
  return std::string(name_of(kind.grad)) + " to " + std::string(name_of(kind.param16)) +
         (kind.store == Store::streamed ? ", streamed" : "") + (kind.in_place ? "" : ", elsewhere");
}
std::vector<Kind> all_kinds() {
  std::vector<Kind> kinds;
  for (const DType grad : {DType::f32, DType::bf16, DType::f16}) {
    for (const bool in_place : {true, false}) {
      kinds.push_back({grad, DType::f32, Store::cached, in_place});
      for (const DType out : {DType::bf16, DType::f16})
        for (const Store store : {Store::cached, Store::streamed})
          kinds.push_back({grad, out, store, in_place});
    }
  }
  return kinds;
}

/// Vectors of n elements that begin `shift` elements after an aligned address.
struct Vectors {
  Vectors(std::int64_t n, const Kind& kind, std::int64_t shift = 0)
      : n(n), begin(kBefore + shift), kind(kind) {
    at::manual_seed(n);
    const auto around = [&](const at::Tensor& values, DType dtype) {
      at::Tensor all = at::full({begin + n + kAfter}, kAround, to_aten(dtype));
      all.narrow(0, begin, n).copy_(values);
      return all;
    };
    grad = around(at::randn({n}), kind.grad);
    p = around(at::randn({n}), DType::f32);
    m = around(at::randn({n}) * 0.1, DType::f32);
    v = around(at::randn({n}).square() * 0.01, DType::f32);
    p16 = around(at::zeros({n}), kind.param16);
  }
  // Keeps a copy of the states before an update that writes elsewhere.
  void keep_old() { old_p = p.clone(), old_m = m.clone(), old_v = v.clone(); }
  [[nodiscard]] at::Tensor inside(const at::Tensor& all) const { return all.narrow(0, begin, n); }
  [[nodiscard]] AdamWVectors pointers() {
    const bool rounds = kind.param16 != DType::f32;
    if (!kind.in_place) keep_old();
    const auto old = [&](const at::Tensor& all) {
      return kind.in_place ? nullptr : inside(all).const_data_ptr<float>();
    };
    return {.grad = inside(grad).const_data_ptr(),
            .grad_dtype = kind.grad,
            .param = inside(p).mutable_data_ptr<float>(),
            .m = inside(m).mutable_data_ptr<float>(),
            .v = inside(v).mutable_data_ptr<float>(),
            .param16 = rounds ? inside(p16).mutable_data_ptr() : nullptr,
            .param16_dtype = rounds ? kind.param16 : DType::bf16,
            .store = kind.store,
            .from = {old(old_p), old(old_m), old(old_v)}};
  }
  void step(std::span<const Range> decay) {  // adamw_step itself
    at::Tensor param = inside(p), momentum = inside(m), variance = inside(v), out = inside(p16);
    adamw_step(kHyper,
               {at::full({}, 1e-2, at::kFloat), at::full({}, 3, at::kLong), at::full({}, 0.7, at::kFloat)},
               decay, inside(grad), param, momentum, variance, kind.param16 == DType::f32 ? nullptr : &out);
  }

  const std::int64_t n, begin;
  const Kind kind;
  at::Tensor grad, p, m, v, p16, old_p, old_m, old_v;
};

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.nbytes() == b.nbytes() && std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}
/// Compares two cases, with the elements around their vectors.
void expect_equal(const Vectors& a, const Vectors& b, const std::string& what) {
  const std::string text = what + ": " + text_of(a.kind) + ", " + std::to_string(a.n) + " elements";
  EXPECT_TRUE(same_bits(a.p, b.p)) << text;
  EXPECT_TRUE(same_bits(a.m, b.m)) << text;
  EXPECT_TRUE(same_bits(a.v, b.v)) << text;
  EXPECT_TRUE(same_bits(a.p16, b.p16)) << text;
}

// The loops for all processors agree: on lengths on both sides of the vector widths and of a streamed block,
// and on numbers that are NaN, too small or too large.
TEST(HostAdam, LoopsForAllProcessorsAgree) {
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> odd = {std::nanf(""), infinity, -infinity, 1e-41F, -0.0F, 7e4F, 3e38F};
  for (const AdamWLoop& loop : adamw_loops()) {
    for (const Kind& kind : all_kinds()) {
      for (const std::int64_t n : {1, 15, 31, 33, 511, 513, 10'007}) {
        Vectors want(n, kind), got(n, kind);
        for (Vectors* x : {&want, &got})
          for (std::size_t i = 0; i < odd.size() && n > 100; ++i) {
            x->inside(x->grad)[static_cast<std::int64_t>(11 * i)].fill_(odd[i]);
            x->inside(x->p)[static_cast<std::int64_t>(13 * i + 1)].fill_(odd[i]);
          }
        adamw_loops().back().run(kFactors, want.pointers(), {0, n});
        loop.run(kFactors, got.pointers(), {0, n});
        expect_equal(got, want, loop.name);
      }
    }
  }
  RecordProperty("widest", adamw_loops().front().name);
}

TEST(HostAdam, EqualsAdamWStepOnAnyThreadsInAnyChunks) {
  const std::int64_t n = 20'011;
  const std::vector<Range> decay = {{5, 7'001}, {7'003, 15'000}};
  for (const Kind& kind : all_kinds()) {
    Vectors want(n, kind, 1);
    want.step(decay);
    for (const int threads : {1, 2, 5}) {
      HostPool pool(threads);
      for (const std::int64_t chunk : {std::int64_t{64}, std::int64_t{999}, HostPool::kChunk}) {
        Vectors got(n, kind, 1);
        const AdamWVectors vectors = got.pointers();
        const auto update = [&](std::int64_t begin, std::int64_t end) {
          adamw_chunk(kFactors, vectors, decay, {begin, end});
        };
        pool.post(n, update, chunk)->wait();
        expect_equal(got, want, std::to_string(threads) + " threads, chunks of " + std::to_string(chunk));
      }
    }
  }
}

// The vectors begin and end anywhere, so at any part of a cache line that is not streamed.
TEST(HostAdam, WritesItsElementsAndNothingElse) {
  for (const Kind& kind : all_kinds()) {
    for (std::int64_t shift = 0; shift < 34; ++shift) {
      for (const std::int64_t n : {1, 40, 600}) {
        const Range r{n / 3, n - n / 5};
        Vectors got(n, kind, shift), want(n, kind, shift);
        adamw_chunk(kFactors, got.pointers(), {}, r);
        Vectors whole(n, kind, shift);
        whole.step({});
        for (const auto member : {&Vectors::p, &Vectors::m, &Vectors::v, &Vectors::p16})
          (want.*member)
              .narrow(0, want.begin + r.begin, r.size())
              .copy_((whole.*member).narrow(0, want.begin + r.begin, r.size()));
        expect_equal(got, want, "shifted by " + std::to_string(shift));
      }
    }
  }
}

// An update into another place does not read what it overwrites, and does not change what it reads.
TEST(HostAdam, AnUpdateElsewhereReadsTheOldStates) {
  for (const Kind& kind : all_kinds()) {
    if (kind.in_place) continue;
    Vectors want(2'000, kind, 1), got(2'000, kind, 1);
    want.step({});
    const AdamWVectors pointers = got.pointers();
    const at::Tensor old[] = {got.old_p.clone(), got.old_m.clone(), got.old_v.clone()};
    for (const auto member : {&Vectors::p, &Vectors::m, &Vectors::v}) got.inside(got.*member).fill_(kAround);
    adamw_chunk(kFactors, pointers, {}, {0, got.n});
    expect_equal(got, want, "elsewhere");
    EXPECT_TRUE(same_bits(got.old_p, old[0]) && same_bits(got.old_m, old[1]) && same_bits(got.old_v, old[2]));
  }
}

// A 16-bit gradient is that number in fp32; here are all numbers of fp16.
TEST(HostAdam, ReadsEveryFp16Number) {
  const at::Tensor numbers = at::arange(1 << 16, at::kInt).to(at::kShort).view(at::kHalf);
  const at::Tensor finite = numbers.index({at::isfinite(numbers)});
  const std::int64_t n = finite.numel();
  EXPECT_EQ(n, (1 << 16) - 2 * 1024);
  Vectors half(n, {DType::f16, DType::f32, Store::cached}), wide(n, {DType::f32, DType::f32, Store::cached});
  half.inside(half.grad).copy_(finite);
  wide.inside(wide.grad).copy_(finite.to(at::kFloat));
  half.step({});
  wide.step({});
  EXPECT_TRUE(same_bits(half.m, wide.m));
  EXPECT_TRUE(same_bits(half.v, wide.v));
}

// Parameters are rounded to nearest, ties to even, as LibTorch does: also those too large or too small for
// fp16.
TEST(HostAdam, RoundsAsLibTorchDoes) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    for (const Store store : {Store::cached, Store::streamed}) {
      Vectors x(40'000, {DType::f32, dtype, store});
      const at::Tensor p = x.inside(x.p);
      p.copy_(at::randn({x.n}) * at::randn({x.n}).mul_(8).exp());
      x.inside(x.m).zero_();
      x.inside(x.grad).zero_();   // and no decay: p stays
      p[0] = 1.0F + 1.0F / 2048;  // ties of fp16
      p[1] = 1.0F + 3.0F / 2048;
      const at::Tensor before = p.clone();
      adamw_chunk(kFactors, x.pointers(), {}, {0, x.n});
      EXPECT_TRUE(at::equal(p, before));
      EXPECT_TRUE(at::equal(x.inside(x.p16), p.to(to_aten(dtype)))) << text_of(x.kind);
    }
  }
}

TEST(HostAdam, NoUpdateChangesNothing) {
  const AdamWFactors none = adamw_factors(kHyper, 1e-2F, 0, kNoUpdate);
  for (const Kind& kind : all_kinds()) {
    Vectors got(1000, kind), want(1000, kind);
    for (Vectors* x : {&got, &want}) x->grad.fill_(std::nanf(""));
    adamw_chunk(none, got.pointers(), std::vector<Range>{{0, 500}}, {0, 1000});
    expect_equal(got, want, "skipped");
  }
}

TEST(HostAdam, RefusesOtherDtypesAlsoOnAPool) {
  Vectors x(8, {DType::f32, DType::bf16, Store::cached});
  AdamWVectors grad = x.pointers(), out = x.pointers();
  grad.grad_dtype = DType::f64;
  out.param16_dtype = DType::f32;
  EXPECT_THROW(adamw_chunk(kFactors, grad, {}, {0, 8}), InputError);
  HostPool pool(2);
  const auto piece = pool.post(
      8,
      [&](std::int64_t begin, std::int64_t end) {
        adamw_chunk(kFactors, out, {}, {begin, end});
      },
      2);
  EXPECT_THROW(piece->wait(), InputError);
  expect_equal(x, Vectors(8, x.kind), "refused");
}

}  // namespace
}  // namespace sc
