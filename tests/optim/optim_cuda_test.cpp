// Tests the optimizer on a GPU: AdamW bit for bit as on the CPU, the norm to the last bits of fp64.
#include <ATen/ops/cat.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <optional>

#include "common/optim/adamw.h"
#include "common/optim/grad_norm.h"
#include "tests/support/gpu.h"

namespace sc {
namespace {

using OptimCudaTest = test::GpuTest;

struct State {
  at::Tensor p, m, v, p16;
  [[nodiscard]] State to(at::Device device) const {
    return {p.to(device), m.to(device), v.to(device), p16.to(device)};
  }
  [[nodiscard]] State part(std::int64_t begin, std::int64_t n) const {
    return {p.narrow(0, begin, n), m.narrow(0, begin, n), v.narrow(0, begin, n), p16.narrow(0, begin, n)};
  }
};

State some_state(std::int64_t n, at::ScalarType type16) {
  return {at::randn({n}), at::randn({n}) * 0.1, at::rand({n}) * 0.01, at::zeros({n}, type16)};
}

StepScalars scalars(std::int64_t step, double clip, at::Device device) {
  return {at::full({}, 3e-3, at::kFloat).to(device), at::full({}, step, at::kLong).to(device),
          at::full({}, clip, at::kFloat).to(device), at::zeros({}, at::kFloat).to(device)};
}

void expect_equal(const State& gpu, const State& cpu, bool rounds) {
  EXPECT_TRUE(at::equal(gpu.p.cpu(), cpu.p));
  EXPECT_TRUE(at::equal(gpu.m.cpu(), cpu.m));
  EXPECT_TRUE(at::equal(gpu.v.cpu(), cpu.v));
  if (rounds) {
    EXPECT_TRUE(at::equal(gpu.p16.cpu(), cpu.p.to(gpu.p16.scalar_type())));
  }
}

// Every offset changes what can be read four at a time; ranges end anywhere, and there are more than one
// launch takes.
TEST_F(OptimCudaTest, AdamWEqualsTheCpuBitForBit) {
  std::vector<Range> many;
  for (std::int64_t i = 0; i < 100; ++i) many.push_back({i * 37 + 1, i * 37 + 1 + i % 36});
  const std::vector<Range> few = {{0, 64}, {1000, 3001}}, none;
  for (const at::ScalarType grad_type : {at::kFloat, at::kBFloat16}) {
    for (const std::int64_t n : {1, 3, 64, 4097, 70003}) {
      for (const std::int64_t offset : {0, 1, 4}) {
        for (const auto& ranges : {none, few, many}) {
          std::vector<Range> inside;
          for (const Range& r : ranges) {
            if (r.end <= n) inside.push_back(r);
          }
          State cpu = some_state(n + offset, at::kBFloat16), gpu = cpu.to(at::kCUDA);
          const at::Tensor grad = at::randn({n + offset}).to(grad_type);
          State a = cpu.part(offset, n), b = gpu.part(offset, n);
          for (const std::int64_t step : {1, 2, 1000}) {
            adamw_step({}, scalars(step, 0.7, at::kCPU), inside, grad.narrow(0, offset, n), a.p, a.m, a.v,
                       &a.p16);
            adamw_step({}, scalars(step, 0.7, at::kCUDA), inside, grad.to(at::kCUDA).narrow(0, offset, n),
                       b.p, b.m, b.v, &b.p16);
          }
          SCOPED_TRACE(std::to_string(n) + " from " + std::to_string(offset) + ", " +
                       std::to_string(inside.size()) + " ranges");
          expect_equal(b, a, true);
        }
      }
    }
  }
}

TEST_F(OptimCudaTest, AdamWInFp16AndWithoutRoundedParameters) {
  State cpu = some_state(5000, at::kHalf), gpu = cpu.to(at::kCUDA);
  const at::Tensor grad = at::randn({5000}).to(at::kHalf);
  const Range decay[] = {{0, 2500}};
  adamw_step({}, scalars(1, 1.0, at::kCPU), decay, grad.to(at::kFloat), cpu.p, cpu.m, cpu.v, nullptr);
  adamw_step({}, scalars(1, 1.0, at::kCUDA), decay, grad.to(at::kCUDA), gpu.p, gpu.m, gpu.v, &gpu.p16);
  expect_equal(gpu, cpu, true);
  adamw_step({}, scalars(2, 1.0, at::kCPU), decay, grad.to(at::kFloat), cpu.p, cpu.m, cpu.v, nullptr);
  adamw_step({}, scalars(2, 1.0, at::kCUDA), decay, grad.to(at::kCUDA), gpu.p, gpu.m, gpu.v, nullptr);
  expect_equal(gpu, cpu, false);
}

TEST_F(OptimCudaTest, SumOfSquares) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const std::int64_t n : {1, 7, 8, 16384, 16385, 1000003}) {
      for (const std::int64_t offset : {0, 1}) {
        const at::Tensor x = test::random({n + offset}, type).narrow(0, offset, n);
        const double want = x.to(at::kDouble).square().sum().item<double>();
        EXPECT_NEAR(sum_of_squares(x), want, 1e-13 * want) << at::toString(type) << " " << n;
        EXPECT_NEAR(sum_of_squares(x.cpu()), sum_of_squares(x), 1e-14 * want);
        at::Tensor sums = at::full({4}, 2.0, test::on_gpu(at::kDouble));
        add_sums_of_squares({&x, 1}, sums);
        EXPECT_EQ(sums[kSquares].item<double>(), 2.0 + sum_of_squares(x));
        EXPECT_EQ(sums[kLossSum].item<double>(), 2.0);
      }
    }
  }
  at::Tensor big = test::random({100000}, at::kFloat), bad = big.clone();
  big[777] = 3e38F;
  EXPECT_TRUE(std::isfinite(sum_of_squares(big)));
  bad[99999] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(sum_of_squares(bad)));
}

// More slices than one launch takes, some empty, some not at 16 bytes.
TEST_F(OptimCudaTest, SumsOfManySlices) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const at::Tensor all = test::random({400000}, type);
    std::vector<at::Tensor> slices;
    double want = 0;
    for (std::int64_t begin = 0, i = 0; i < 150; begin += 17 * i, ++i) {
      slices.push_back(all.narrow(0, begin, 17 * i));
      want += slices.back().to(at::kDouble).square().sum().item<double>();
    }
    at::Tensor sums = at::zeros({4}, test::on_gpu(at::kDouble)),
               again = at::zeros({4}, test::on_gpu(at::kDouble));
    add_sums_of_squares(slices, sums);
    add_sums_of_squares(slices, again);
    EXPECT_NEAR(sums[kSquares].item<double>(), want, 1e-13 * want);
    EXPECT_TRUE(at::equal(sums, again));
  }
}

TEST_F(OptimCudaTest, NormClipAndFiniteness) {
  for (const double squares : {0.0, 0.25, 4.0, 1e30, std::numeric_limits<double>::infinity(), std::nan("")}) {
    for (const double limit : {0.0, 1.0}) {
      const at::Tensor sums = at::tensor({3.0, 7.0, squares, 9.0}, at::kDouble);
      at::Tensor cpu = sums.clone(), gpu = sums.to(at::kCUDA);
      finish_sums(cpu), finish_sums(gpu);
      EXPECT_EQ(cpu[kNonFinite].item<double>(), gpu[kNonFinite].item<double>());
      StepScalars host = scalars(5, 0, at::kCPU), device = scalars(5, 0, at::kCUDA);
      if (squares > 1 || std::isnan(squares)) {  // with a loss scale that the next overflow halves
        host.loss_scale = at::full({}, 8.0, at::kFloat), host.scaler_state = at::ones({2}, at::kLong);
        device.loss_scale = host.loss_scale.to(at::kCUDA),
        device.scaler_state = host.scaler_state.to(at::kCUDA);
      }
      global_norm_and_clip(cpu, limit, host);
      global_norm_and_clip(gpu, limit, device);
      if (host.loss_scale.defined()) {
        EXPECT_EQ(host.loss_scale.item<float>(), device.loss_scale.item<float>()) << squares;
        EXPECT_TRUE(at::equal(host.scaler_state, device.scaler_state.cpu())) << squares;
      }
      EXPECT_EQ(host.clip.item<float>(), device.clip.item<float>()) << squares;
      EXPECT_EQ(host.step.item<std::int64_t>(), device.step.item<std::int64_t>()) << squares;
      if (!std::isnan(squares)) {
        EXPECT_EQ(host.grad_norm.item<float>(), device.grad_norm.item<float>()) << squares;
      }
    }
  }
}

// Steps with gradients of both dtypes, with a rounded copy and without, with weight decay and a loss scale.
TEST_F(OptimCudaTest, AllocatesNothingAfterTheFirstStep) {
  State state = some_state(100003, at::kBFloat16).to(at::kCUDA);
  const std::vector<at::Tensor> grads = {test::random({100003}, at::kFloat),
                                         test::random({100003}, at::kBFloat16)};
  at::Tensor sums = at::zeros({4}, test::on_gpu(at::kDouble));
  StepScalars s = scalars(0, 1.0, at::kCUDA);
  s.loss_scale = at::full({}, 8.0, test::on_gpu(at::kFloat));
  s.scaler_state = at::zeros({2}, test::on_gpu(at::kLong));
  const Range decay[] = {{0, 2500}, {5000, 100003}};
  const auto step = [&] {
    for (const at::Tensor& grad : grads) {
      add_sums_of_squares({&grad, 1}, sums);
      finish_sums(sums);
      global_norm_and_clip(sums, 1.0, s);
      adamw_step({}, s, decay, grad, state.p, state.m, state.v, &state.p16);
      adamw_step({}, s, decay, grad, state.p, state.m, state.v, nullptr);
    }
  };
  step();
  const std::int64_t before = test::allocations();
  step();
  EXPECT_EQ(test::allocations(), before);
}

// Norm, clip and update are captured in one graph, which reads step number and learning rate when it runs.
TEST_F(OptimCudaTest, CapturedStep) {
  const std::int64_t n = 100003;
  State eager = some_state(n, at::kBFloat16).to(at::kCUDA);
  const at::Tensor grad = test::random({n}, at::kBFloat16);
  State graphed{eager.p.clone(), eager.m.clone(), eager.v.clone(), eager.p16.clone()};
  at::Tensor sums = at::zeros({4}, test::on_gpu(at::kDouble));
  StepScalars s = scalars(0, 1.0, at::kCUDA);
  const auto step = [&](State& state) {
    sums.zero_();
    add_sums_of_squares({&grad, 1}, sums);
    finish_sums(sums);
    global_norm_and_clip(sums, 1.0, s);
    adamw_step({}, s, {}, grad, state.p, state.m, state.v, &state.p16);
  };
  for (int i = 0; i < 5; ++i) step(eager);
  s.step.zero_();
  test::replay([&] { step(graphed); }, 3);  // after two eager ones
  EXPECT_EQ(s.step.item<std::int64_t>(), 5);
  EXPECT_TRUE(at::equal(graphed.p, eager.p));
  EXPECT_TRUE(at::equal(graphed.v, eager.v));
  EXPECT_TRUE(at::equal(graphed.p16, eager.p16));
}

}  // namespace
}  // namespace sc
