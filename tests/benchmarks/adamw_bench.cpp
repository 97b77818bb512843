// Parameters a second of adamw_step, beside what this machine's memory carries in a loop that does nothing
// else. Choose no power of two: arrays that lie such a distance apart share cache sets, and narrow loads slow
// down threefold.
//   adamw_benchmark [parameters, default 30000000] [threads, default 1] [repeats, default 25]
#include <ATen/Parallel.h>
#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "common/optim/adamw.h"
#include "common/optim/grad_norm.h"

namespace {

constexpr int kWarmUp = 5;

struct Spread {
  double median, low, high;  // seconds
};

template <class F>
Spread time_of(int repeats, F&& f) {
  std::vector<double> seconds;
  for (int i = 0; i < repeats + kWarmUp; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    f();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    if (i >= kWarmUp) seconds.push_back(took.count());
  }
  std::sort(seconds.begin(), seconds.end());
  return {seconds[seconds.size() / 2], seconds.front(), seconds.back()};
}

void print(const char* what, std::int64_t n, double bytes_each, const Spread& s) {
  const auto count = static_cast<double>(n);
  std::printf("%-40s %6.3f Gparam/s  %6.1f GB/s  median %.3f ms (%.3f..%.3f)\n", what,
              count / s.median * 1e-9, count * bytes_each / s.median * 1e-9, s.median * 1e3, s.low * 1e3,
              s.high * 1e3);
}

// What adamw_step reads and writes, and next to no arithmetic: the bound that memory sets.
void add_streams(const at::Tensor& grad, at::Tensor& param, at::Tensor& momentum, at::Tensor& variance) {
  const float* g = grad.const_data_ptr<float>();
  float *p = param.mutable_data_ptr<float>(), *m = momentum.mutable_data_ptr<float>(),
        *v = variance.mutable_data_ptr<float>();
  at::parallel_for(0, grad.numel(), 1 << 15, [&](std::int64_t begin, std::int64_t end) {
#pragma GCC ivdep
    for (std::int64_t i = begin; i < end; ++i) {
      const float pi = p[i] + g[i], mi = m[i] + g[i], vi = v[i] + g[i];
      p[i] = pi;
      m[i] = mi;
      v[i] = vi;
    }
  });
}

}  // namespace

int main(int argc, char** argv) {
  const std::int64_t n = argc > 1 ? std::atoll(argv[1]) : 30'000'000;
  at::set_num_threads(argc > 2 ? std::atoi(argv[2]) : 1);
  const int repeats = argc > 3 ? std::atoi(argv[3]) : 25;
  at::Tensor p = at::rand({n}), m = at::zeros({n}), v = at::zeros({n}), p16 = at::zeros({n}, at::kBFloat16);
  const at::Tensor g = at::rand({n}), g16 = g.to(at::kBFloat16);
  const sc::StepScalars scalars{at::full({}, 1e-3, at::kFloat), at::full({}, 10, at::kLong),
                                at::full({}, 0.5, at::kFloat)};
  const sc::Range decay[] = {{0, n / 2}};
  std::printf("%lld parameters, %d threads\n", static_cast<long long>(n), at::get_num_threads());
  print("the same traffic, one addition each", n, 28, time_of(repeats, [&] { add_streams(g, p, m, v); }));
  m.zero_(), v.zero_();
  const auto step = [&](const at::Tensor& grad, at::Tensor* out) {
    sc::adamw_step({}, scalars, decay, grad, p, m, v, out);
  };
  print("fp32 gradient", n, 28, time_of(repeats, [&] { step(g, nullptr); }));
  print("bf16 gradient, bf16 parameters out", n, 28, time_of(repeats, [&] { step(g16, &p16); }));
  volatile double sink = 0;
  print("sum of squares, fp32", n, 4, time_of(repeats, [&] { sink = sc::sum_of_squares(g); }));
  print("sum of squares, bf16", n, 2, time_of(repeats, [&] { sink = sc::sum_of_squares(g16); }));
}
