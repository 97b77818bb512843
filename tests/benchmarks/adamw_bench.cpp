// Parameters per second of adamw_step and of host Adam on a HostPool, compared with what this machine's
// memory carries in a loop that does nothing else; in pages of 4 KiB and in huge ones. Do not choose a power
// of two: arrays at such distances share cache sets, and narrow loads slow down threefold.
//   adamw_benchmark [parameters, default 30000000] [threads, default 1] [repeats, default 25]
#include <ATen/Parallel.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "common/base/host_pool.h"
#include "common/memory/host_pages.h"
#include "common/memory/ledger.h"
#include "common/optim/adamw.h"
#include "common/optim/grad_norm.h"
#include "common/optim/host_adam.h"
#include "tests/benchmarks/timing.h"

namespace {

template <class F>
std::vector<double> time_of(int repeats, const F& f) {
  return sc::benchmark::seconds_of(repeats, 5, f);
}

void print(const std::string& what, std::int64_t n, double bytes_each, const std::vector<double>& seconds) {
  const double count = static_cast<double>(n), each = sc::benchmark::quantile(seconds, 0.5);
  std::printf("%-40s %6.3f Gparam/s  %6.1f GB/s  median %.3f ms (%.3f..%.3f)\n", what.c_str(),
              count / each * 1e-9, count * bytes_each / each * 1e-9, each * 1e3, seconds.front() * 1e3,
              seconds.back() * 1e3);
}

// Reads and writes the same bytes as adamw_step with next to no arithmetic: the bound that memory sets.
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

// Zeros in huge pages, if the system gives them, or in small ones.
at::Tensor vector_of(std::int64_t n, at::ScalarType type, bool huge) {
  const std::int64_t bytes = n * static_cast<std::int64_t>(at::elementSize(type));
  std::shared_ptr<void> pages;
  if (huge) {
    pages = sc::host_pages(sc::Bytes(bytes), false);
  } else {
    const auto size = static_cast<std::size_t>(bytes);
    void* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    ::madvise(memory, size, MADV_NOHUGEPAGE);
    pages = {memory, [size](void* p) { ::munmap(p, size); }};
  }
  return at::from_blob(
             pages.get(), {n}, [pages](void*) {}, at::TensorOptions(type))
      .zero_();
}

// The kilobytes of this process that the system put in huge pages.
long huge_kib() {
  long kib = 0;
  if (std::FILE* file = std::fopen("/proc/self/smaps_rollup", "r")) {
    char line[256];
    while (std::fgets(line, sizeof line, file) != nullptr)
      if (std::sscanf(line, "AnonHugePages: %ld", &kib) == 1) break;
    std::fclose(file);
  }
  return kib;
}

// Posts pieces of 4 M elements like lesson 05; no thread waits between them.
void on_pool(sc::HostPool& pool, const sc::AdamWVectors& vectors, std::int64_t n) {
  constexpr std::int64_t kPiece = std::int64_t{1} << 22;
  const sc::AdamWFactors factors = sc::adamw_factors({}, 1e-3F, 10, 0.5F);
  std::vector<std::shared_ptr<const sc::HostPiece>> pieces;
  for (std::int64_t at = 0; at < n; at += kPiece)
    pieces.push_back(pool.post(std::min(kPiece, n - at), [=](std::int64_t begin, std::int64_t end) {
      sc::adamw_chunk(factors, vectors, {}, {at + begin, at + end});
    }));
  for (const auto& piece : pieces) piece->wait();
}

void measure(std::int64_t n, int repeats, sc::HostPool& pool, bool huge) {
  const auto make = [&](at::ScalarType type) { return vector_of(n, type, huge); };
  at::Tensor p = make(at::kFloat), m = make(at::kFloat), v = make(at::kFloat), g = make(at::kFloat);
  at::rand_out(p, {n}), at::rand_out(g, {n});
  std::printf("%s, %.1f GiB of it huge\n", huge ? "huge pages" : "pages of 4 KiB",
              static_cast<double>(huge_kib()) / (1 << 20));
  print("the same traffic, one addition each", n, 28, time_of(repeats, [&] { add_streams(g, p, m, v); }));
  m.zero_(), v.zero_();
  // The states that an update in another place reads.
  const at::Tensor other = vector_of(3 * n, at::kFloat, huge);
  sc::AdamWVectors vectors{g.const_data_ptr(), sc::DType::f32, p.mutable_data_ptr<float>(),
                           m.mutable_data_ptr<float>(), v.mutable_data_ptr<float>()};
  const sc::StepScalars scalars{at::full({}, 1e-3, at::kFloat), at::full({}, 10, at::kLong),
                                at::full({}, 0.5, at::kFloat)};
  const auto step = [&](const at::Tensor& grad, at::Tensor* out) {
    sc::adamw_step({}, scalars, {}, grad, p, m, v, out);
  };
  print("adamw_step, fp32", n, 28, time_of(repeats, [&] { step(g, nullptr); }));
  print("pool, fp32", n, 28, time_of(repeats, [&] { on_pool(pool, vectors, n); }));
  volatile double sink = 0;
  print("sum of squares, fp32", n, 4, time_of(repeats, [&] { sink = sc::sum_of_squares(g); }));
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    at::Tensor g16 = make(type), p16 = make(type);
    g16.copy_(g);
    const std::string name(sc::name_of(sc::from_aten(type)));
    print("adamw_step, " + name, n, 28, time_of(repeats, [&] { step(g16, &p16); }));
    vectors.grad = g16.const_data_ptr(), vectors.param16 = p16.mutable_data_ptr();
    vectors.grad_dtype = vectors.param16_dtype = sc::from_aten(type);
    for (const auto& [store, what] :
         {std::pair{sc::Store::cached, ""}, {sc::Store::streamed, ", streamed"}}) {
      vectors.store = store;
      print("pool, " + name + what, n, 28, time_of(repeats, [&] { on_pool(pool, vectors, n); }));
      vectors.from = {other.const_data_ptr<float>(), other.const_data_ptr<float>() + n,
                      other.const_data_ptr<float>() + 2 * n};
      print("pool, " + name + what + ", elsewhere", n, 28,
            time_of(repeats, [&] { on_pool(pool, vectors, n); }));
      vectors.from = {};
    }
    print("sum of squares, " + name, n, 2, time_of(repeats, [&] { sink = sc::sum_of_squares(g16); }));
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::int64_t n = argc > 1 ? std::atoll(argv[1]) : 30'000'000;
  const int threads = argc > 2 ? std::atoi(argv[2]) : 1;
  const int repeats = argc > 3 ? std::atoi(argv[3]) : 25;
  at::set_num_threads(threads);
  sc::HostPool pool(threads);
  std::printf("%lld parameters, %d threads, %s\n", static_cast<long long>(n), threads,
              sc::adamw_loops().front().name);
  for (const bool huge : {false, true}) measure(n, repeats, pool, huge);
}
