#include "common/optim/adamw.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "common/base/check.h"
#include "common/optim/grad_norm.h"
#include "tests/model/golden.h"
#include "tests/optim/hyper.h"

namespace sc {
namespace {

using test::kHyper, test::read;

struct State {
  at::Tensor p, m, v;
  explicit State(std::int64_t n)
      : p(at::randn({n})), m(at::randn({n}) * 0.1), v(at::randn({n}).square() * 0.01) {}
  State(at::Tensor p, at::Tensor m, at::Tensor v) : p(std::move(p)), m(std::move(m)), v(std::move(v)) {}
  [[nodiscard]] State copy() const { return {p.clone(), m.clone(), v.clone()}; }
  [[nodiscard]] State slice(Range r) const {
    return {p.narrow(0, r.begin, r.size()), m.narrow(0, r.begin, r.size()), v.narrow(0, r.begin, r.size())};
  }
};

void expect_equal(const State& a, const State& b) {
  EXPECT_TRUE(at::equal(a.p, b.p));
  EXPECT_TRUE(at::equal(a.m, b.m));
  EXPECT_TRUE(at::equal(a.v, b.v));
}

StepScalars scalars_of(double lr, std::int64_t step, double clip) {
  return {at::full({}, lr, at::kFloat), at::full({}, step, at::kLong), at::full({}, clip, at::kFloat)};
}

void step(State& s, const at::Tensor& grad, std::span<const Range> decay, at::Tensor* param16 = nullptr) {
  adamw_step(kHyper, scalars_of(1e-2, 3, 0.7), decay, grad, s.p, s.m, s.v, param16);
}

double relative(const at::Tensor& got, const at::Tensor& want) {
  return ((got - want).abs().max() / want.abs().max()).item<double>();
}

// Twenty steps compared with torch.optim.AdamW in fp64 (golden/make_adamw_golden.py), with clipping by the
// global norm.
TEST(AdamW, AgreesWithPyTorch) {
  const SafetensorsReader golden("tests/optim/golden/adamw.safetensors");
  const at::Tensor grads = read(golden, "grad"), lr = read(golden, "lr"), norms = read(golden, "norm"),
                   clips = read(golden, "clip");
  State s(read(golden, "param"), at::zeros({203}), at::zeros({203}));
  const std::vector<Range> decay = {{0, 77}};
  for (std::int64_t t = 1; t <= 20; ++t) {
    at::Tensor sums = at::zeros({4}, at::kDouble);
    const StepScalars scalars{lr.select(0, t - 1), at::full({}, t - 1, at::kLong), at::zeros({}),
                              at::zeros({})};
    const at::Tensor grad = grads.select(0, t - 1);
    add_sums_of_squares({&grad, 1}, sums);
    global_norm_and_clip(sums, 1.0, scalars);
    // The norm is rounded once and the quotient once: 2^-23 together.
    EXPECT_NEAR(scalars.grad_norm.item<float>(), norms[t - 1].item<float>(),
                1.2e-7 * norms[t - 1].item<float>());
    EXPECT_NEAR(scalars.clip.item<float>(), clips[t - 1].item<float>(), 2.4e-7);
    adamw_step(kHyper, scalars, decay, grad, s.p, s.m, s.v, nullptr);
    if (t != 1 && t != 20) continue;
    // m and v have at most 5 roundings of 2^-24 (clip, product, square, factor, sum) per step of the largest
    // element; earlier steps' errors fade by beta, so they add up to less than 5 / (1 - beta) * 2^-24 / (sum
    // of the weights) <= 10 x 5 x 6e-8 = 3e-6. p has two roundings per step of its own size and a dozen of
    // the update (lr times about one, so a hundredth of p): 20 x (2 + 12 / 100) x 6e-8 = 2.6e-6.
    const std::string at = "_" + std::to_string(t);
    EXPECT_LT(relative(s.p, read(golden, "param" + at)), 3e-6) << t;
    EXPECT_LT(relative(s.m, read(golden, "m" + at)), 3e-6) << t;
    EXPECT_LT(relative(s.v, read(golden, "v" + at)), 3e-6) << t;
  }
}

TEST(AdamW, NoUpdateChangesNothing) {
  State s(100);
  const State before = s.copy();
  const at::Tensor grad = at::full({100}, std::nanf(""), at::kFloat);
  adamw_step(kHyper, scalars_of(1e-2, 3, kNoUpdate), {}, grad, s.p, s.m, s.v, nullptr);
  expect_equal(s, before);
}

// The bits do not depend on where a vector is cut, so neither on which elements vector instructions cover and
// which the remainder.
TEST(AdamW, SlicesEqualTheWhole) {
  for (const std::int64_t n : {1, 15, 16, 17, 257, 1000}) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      const State start(n);
      const at::Tensor grad = at::randn({n}).to(type);
      State whole = start.copy(), cut = start.copy();
      step(whole, grad, std::vector<Range>{{0, n}});
      for (std::int64_t begin = 0, size = 1; begin < n; begin += size, size = size * 2 + 1) {
        const Range r{begin, std::min(n, begin + size)};
        State slice = cut.slice(r);
        step(slice, grad.narrow(0, r.begin, r.size()), std::vector<Range>{{0, r.size()}});
      }
      expect_equal(whole, cut);
      EXPECT_FALSE(at::equal(whole.p, start.p));
    }
  }
}

TEST(AdamW, ThreadsDoNotChangeABit) {
  const std::int64_t n = 200'003;  // several grains, no multiple of anything
  const State start(n);
  const at::Tensor grad = at::randn({n});
  const std::vector<Range> decay = {{5, 70'001}, {70'003, 150'000}};
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  State one = start.copy();
  step(one, grad, decay);
  for (const int threads : {2, 3}) {
    at::set_num_threads(threads);
    State many = start.copy();
    step(many, grad, decay);
    expect_equal(one, many);
  }
  at::set_num_threads(before);
}

// Compares with the rule in plain code for the oldest processor. Here the clone for this processor runs,
// which would differ if it contracted multiplications and additions.
TEST(AdamW, EqualsPlainCodeOnThisProcessor) {
  const std::int64_t n = 10'007;
  const State start(n);
  const at::Tensor grad = at::randn({n});
  State s = start.copy();
  step(s, grad, std::vector<Range>{{0, n}});
  const double lr = 1e-2F;
  const auto keep = static_cast<float>(1 - lr * 0.1),
             step_size = static_cast<float>(lr / (1 - std::pow(0.9, 3)));
  const auto v_scale = static_cast<float>(1 / std::sqrt(1 - std::pow(0.95, 3)));
  for (std::int64_t i = 0; i < n; ++i) {
    const float g = 0.7F * grad.const_data_ptr<float>()[i];
    const float m = 0.9F * start.m.const_data_ptr<float>()[i] + static_cast<float>(1 - 0.9) * g;
    const float v = 0.95F * start.v.const_data_ptr<float>()[i] + static_cast<float>(1 - 0.95) * (g * g);
    const float p =
        start.p.const_data_ptr<float>()[i] * keep - step_size * (m / (std::sqrt(v) * v_scale + 1e-8F));
    ASSERT_EQ(s.m.const_data_ptr<float>()[i], m) << i;
    ASSERT_EQ(s.v.const_data_ptr<float>()[i], v) << i;
    ASSERT_EQ(s.p.const_data_ptr<float>()[i], p) << i;
  }
}

// Each element of a slice equals one of two whole vectors, one that decays everywhere and one that decays
// nowhere.
TEST(AdamW, DecaysItsRangesAndNothingElse) {
  const std::int64_t n = 300;
  const State start(n);
  const at::Tensor grad = at::randn({n});
  State everywhere = start.copy(), nowhere = start.copy();
  step(everywhere, grad, std::vector<Range>{{0, n}});
  step(nowhere, grad, {});
  const std::vector<Range> all = {{3, 40}, {40, 41}, {100, 277}};
  for (const Range r : {Range{0, 300}, Range{10, 120}, Range{41, 100}, Range{276, 278}, Range{39, 102}}) {
    std::vector<Range> decay;  // relative to the slice, as ParamLayout::decay_ranges gives them
    for (const Range& d : all) {
      const Range inside{std::max(d.begin, r.begin) - r.begin, std::min(d.end, r.end) - r.begin};
      if (inside.begin < inside.end) decay.push_back(inside);
    }
    State s = start.copy();
    State slice = s.slice(r);
    step(slice, grad.narrow(0, r.begin, r.size()), decay);
    for (std::int64_t i = 0; i < n; ++i) {
      const bool decays = (3 <= i && i < 41) || (100 <= i && i < 277);
      const State& want = i < r.begin || i >= r.end ? start : decays ? everywhere : nowhere;
      ASSERT_EQ(s.p.const_data_ptr<float>()[i], want.p.const_data_ptr<float>()[i]) << i;
      ASSERT_EQ(s.m.const_data_ptr<float>()[i], want.m.const_data_ptr<float>()[i]) << i;
    }
  }
}

// With zero gradient and moments the update is the decay alone: p (1 - lr decay).
TEST(AdamW, DecayIsDecoupled) {
  State s(at::full({4}, 2.0F), at::zeros({4}), at::zeros({4}));
  step(s, at::zeros({4}), std::vector<Range>{{0, 4}});
  EXPECT_EQ(s.p[3].item<float>(), 2.0F * static_cast<float>(1.0 - static_cast<double>(1e-2F) * 0.1));
  EXPECT_EQ(s.m[3].item<float>(), 0.0F);
}

// A 16-bit gradient is that number in fp32; 16-bit parameters are the fp32 ones rounded to nearest, ties to
// even, as LibTorch does.
TEST(AdamW, ReadsAndWrites16Bits) {
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    for (const std::int64_t n : {7, 33, 70'001}) {
      const State start(n);
      const at::Tensor grad16 = at::randn({n}).to(type);
      const std::vector<Range> decay = {{0, n / 2}};
      State wide = start.copy(), narrow = start.copy();
      at::Tensor from_wide = at::zeros({n}, type), from_narrow = at::zeros({n}, type);
      step(wide, grad16.to(at::kFloat), decay, &from_wide);
      step(narrow, grad16, decay, &from_narrow);
      expect_equal(wide, narrow);
      EXPECT_TRUE(at::equal(from_wide, wide.p.to(type)));
      EXPECT_TRUE(at::equal(from_narrow, from_wide));
      State alone = start.copy();
      step(alone, grad16, decay);
      expect_equal(alone, narrow);
    }
  }
}

// Ties go to the even neighbour: 1 + 2^-8 lies between 1 and 1 + 2^-7.
TEST(AdamW, RoundsTiesToEven) {
  State s(at::full({2}, 1.0F), at::zeros({2}), at::zeros({2}));
  s.p[0] = 1.0F + 1.0F / 256;
  s.p[1] = 1.0F + 3.0F / 256;
  at::Tensor p16 = at::zeros({2}, at::kBFloat16);
  step(s, at::zeros({2}), {}, &p16);
  EXPECT_EQ(p16[0].item<float>(), 1.0F);
  EXPECT_EQ(p16[1].item<float>(), 1.0F + 4.0F / 256);
}

TEST(AdamW, TakesAnEmptySlice) {
  State s(0);
  step(s, at::randn({0}), {});
  EXPECT_EQ(s.p.numel(), 0);
}

TEST(AdamW, RefusesWhatItCannotUpdate) {
  State s(8);
  at::Tensor wide = at::zeros({8}), short16 = at::zeros({7}, at::kHalf);
  EXPECT_THROW(step(s, at::randn({8}).to(at::kDouble), {}), InputError);
  EXPECT_THROW(step(s, at::randn({7}), {}), InputError);
  EXPECT_THROW(step(s, at::randn({16}).slice(0, 0, 16, 2), {}), InputError);
  EXPECT_THROW(step(s, at::randn({8}), {}, &wide), InputError);
  EXPECT_THROW(step(s, at::randn({8}), {}, &short16), InputError);
}

}  // namespace
}  // namespace sc
