// Every operation of a training step on a GPU, fused and by ATen: microseconds, and the share of the bound
// (bytes over memory bandwidth, or operations over the bf16 rate of a large product) that they reach. One
// table per model size.
//   ops_benchmark [124m | 355m | 774m | 1558m | seed ...]   (default: all)
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/base/cuda_check.h"
#include "common/model/ops.h"
#include "common/optim/adamw.h"
#include "common/optim/grad_norm.h"

namespace sc {
namespace {

// An H200's rates as measured (docs/results): a device-to-device copy, read and written bytes; a large square
// bf16 product.
constexpr double kBytesPerSecond = 4.3e12;
constexpr double kFlopsPerSecond = 788e12;
constexpr int kRounds = 7, kRunsARound = 12,
              kSets = 3;  // sets of operands, so that none is still in the cache

struct Size {
  const char* name;
  std::int64_t batch, length, width, heads;
  [[nodiscard]] std::int64_t rows() const { return batch * length; }
};
constexpr Size kSizes[] = {{"124m", 32, 1024, 768, 12},
                           {"355m", 16, 1024, 1024, 16},
                           {"774m", 16, 1024, 1280, 20},
                           {"1558m", 8, 1024, 1600, 25},
                           {"seed", 4, 512, 1024, 16}};
constexpr std::int64_t kVocab = 50257, kPadded = 50304, kChunk = 4096;

// The median over rounds of a call's mean in a round, in microseconds; f(i) is call i of the round.
double microseconds(const std::function<void(int)>& f) {
  cudaEvent_t begin{}, end{};
  SC_CHECK(cudaEventCreate(&begin));
  SC_CHECK(cudaEventCreate(&end));
  const cudaStream_t stream = c10::cuda::getCurrentCUDAStream();
  for (int i = 0; i < kSets; ++i) f(i);
  std::vector<float> all;
  for (int round = 0; round < kRounds; ++round) {
    SC_CHECK(cudaEventRecord(begin, stream));
    for (int i = 0; i < kRunsARound; ++i) f(i);
    SC_CHECK(cudaEventRecord(end, stream));
    SC_CHECK(cudaEventSynchronize(end));
    float milliseconds = 0;
    SC_CHECK(cudaEventElapsedTime(&milliseconds, begin, end));
    all.push_back(milliseconds);
  }
  SC_CHECK(cudaEventDestroy(begin));
  SC_CHECK(cudaEventDestroy(end));
  std::sort(all.begin(), all.end());
  return all[all.size() / 2] * 1e3 / kRunsARound;
}

void print(const char* what, double fused, double aten, double bound, const char* unit, double amount) {
  std::printf("%-34s %9.1f us  %6.2f %s  %4.0f %% of bound", what, fused, amount / fused * 1e-6, unit,
              100 * bound / fused);
  if (aten > 0) std::printf("   aten %9.1f us  x %.2f", aten, aten / fused);
  std::printf("\n");
  std::fflush(stdout);
}

using Call = std::function<void(const Ops&, int)>;

class Bench {
 public:
  explicit Bench(const Size& size) : size_(size), n_(size.rows()), d_(size.width) {}

  void run() {
    std::printf("\n%s: batch %lld x %lld, width %lld\n", size_.name, static_cast<long long>(size_.batch),
                static_cast<long long>(size_.length), static_cast<long long>(d_));
    norms();
    columns();
    products();
    attention();
    head();
    embedding();
    optimizer();
  }

 private:
  using Set = std::vector<at::Tensor>;
  static at::TensorOptions gpu(at::ScalarType type) {
    return at::TensorOptions().device(at::kCUDA).dtype(type);
  }
  static at::Tensor rows(std::int64_t n, std::int64_t columns) {
    return at::randn({n, columns}, gpu(at::kBFloat16));
  }
  static Set set(std::int64_t n, std::int64_t columns) {
    Set all;
    for (int i = 0; i < kSets; ++i) all.push_back(rows(n, columns));
    return all;
  }
  static at::Tensor vector(std::int64_t n) { return at::randn({n}, gpu(at::kBFloat16)); }
  static at::Tensor f32(std::int64_t n) { return at::empty({n}, gpu(at::kFloat)); }

  void memory(const char* what, double bytes, const Call& call) {
    print(what, microseconds([&](int i) { call(*fused_, i % kSets); }),
          microseconds([&](int i) { call(*aten_, i % kSets); }), bytes / kBytesPerSecond * 1e6, "TB/s",
          bytes);
  }
  void arithmetic(const char* what, double flops, const Call& call) {
    print(what, microseconds([&](int i) { call(*fused_, i % kSets); }),
          microseconds([&](int i) { call(*aten_, i % kSets); }), flops / kFlopsPerSecond * 1e6, "TF/s",
          flops);
  }
  // The bytes of `count` bf16 values per row and column of [rows, width].
  [[nodiscard]] double slabs(double count) const { return 2.0 * count * static_cast<double>(n_ * d_); }

  void norms() {
    Set x = set(n_, d_), y = set(n_, d_), dy = set(n_, d_), dx = set(n_, d_), residual = set(n_, d_);
    const at::Tensor w = vector(d_), b = vector(d_);
    at::Tensor mean = f32(n_), rstd = f32(n_);
    memory("layer_norm", slabs(2),
           [&](const Ops& ops, int i) { ops.layer_norm(x[i], w, b, y[i], mean, rstd); });
    LayerNormSums all{f32(d_), f32(d_), f32(d_), f32(d_)}, two{f32(d_), f32(d_), {}, {}};
    memory("layer_norm_backward, 4 sums", slabs(4), [&](const Ops& ops, int i) {
      ops.layer_norm_backward(dy[i], x[i], mean, rstd, w, residual[i], dx[i], all);
    });
    memory("layer_norm_backward, 2 sums", slabs(4), [&](const Ops& ops, int i) {
      ops.layer_norm_backward(dy[i], x[i], mean, rstd, w, residual[i], dx[i], two);
    });
  }

  void columns() {
    Set wide = set(n_, 4 * d_), other = set(n_, 4 * d_), three = set(n_, 3 * d_);
    at::Tensor sums = f32(4 * d_), sums3 = f32(3 * d_), grad = vector(4 * d_);
    memory("gelu", slabs(8), [&](const Ops& ops, int i) { ops.gelu(wide[i], other[i]); });
    memory("gelu_backward and bias", slabs(12),
           [&](const Ops& ops, int i) { ops.gelu_backward(other[i], wide[i], sums); });
    memory("column_sums [N, 3d]", slabs(3), [&](const Ops& ops, int i) { ops.column_sums(three[i], sums3); });
    memory("store_sums [4d]", 10.0 * static_cast<double>(d_) * 4, [&](const Ops& ops, int) {
      const StoredSums stored[] = {{sums, grad}};
      ops.store_sums(stored, Write::accumulate);
    });
  }

  void products() {
    Set x = set(n_, d_), y = set(n_, d_), residual = set(n_, d_), wide = set(n_, 4 * d_),
        gelu = set(n_, 4 * d_), qkv = set(n_, 3 * d_);
    const at::Tensor square = rows(d_, d_), up = rows(4 * d_, d_), down = rows(d_, 4 * d_),
                     in = rows(3 * d_, d_);
    const at::Tensor b = vector(d_), b3 = vector(3 * d_), b4 = vector(4 * d_);
    at::Tensor grad = rows(4 * d_, d_), grad32 = at::zeros({4 * d_, d_}, gpu(at::kFloat));
    const double unit = 2.0 * static_cast<double>(n_ * d_ * d_);
    arithmetic("linear [d -> 3d]", 3 * unit,
               [&](const Ops& ops, int i) { ops.linear(x[i], in, b3, qkv[i]); });
    arithmetic("linear_residual [d -> d]", unit,
               [&](const Ops& ops, int i) { ops.linear_residual(x[i], square, b, residual[i], y[i]); });
    arithmetic("linear_residual [4d -> d]", 4 * unit,
               [&](const Ops& ops, int i) { ops.linear_residual(wide[i], down, b, residual[i], y[i]); });
    arithmetic("linear_gelu [d -> 4d]", 4 * unit,
               [&](const Ops& ops, int i) { ops.linear_gelu(x[i], up, b4, wide[i], gelu[i]); });
    print("  the same, linear then gelu", microseconds([&](int i) {
            const int s = i % kSets;
            fused_->linear(x[s], up, b4, wide[s]);
            fused_->gelu(wide[s], gelu[s]);
          }),
          0, 4 * unit / kFlopsPerSecond * 1e6, "TF/s", 4 * unit);
    arithmetic("matmul_backward_input [4d -> d]", 4 * unit,
               [&](const Ops& ops, int i) { ops.matmul_backward_input(wide[i], up, y[i]); });
    arithmetic("matmul_backward_weight [4d, d]", 4 * unit, [&](const Ops& ops, int i) {
      ops.matmul_backward_weight(wide[i], x[i], grad, Write::accumulate);
    });
    arithmetic("  the same, fp32 gradient", 4 * unit, [&](const Ops& ops, int i) {
      ops.matmul_backward_weight(wide[i], x[i], grad32, Write::accumulate);
    });
  }

  void attention() {
    const std::int64_t b = size_.batch, t = size_.length, h = size_.heads, d = d_ / h;
    Set qkv, out, grad, grad_qkv;
    for (int i = 0; i < kSets; ++i) {
      qkv.push_back(rows(n_, 3 * d_).view({b, t, 3, h, d})),
          grad_qkv.push_back(rows(n_, 3 * d_).view({b, t, 3, h, d}));
      out.push_back(rows(n_, d_).view({b, t, h, d})), grad.push_back(rows(n_, d_).view({b, t, h, d}));
    }
    at::Tensor lse = at::empty({b, h, t}, gpu(at::kFloat));
    QueriesKeysValues grads = unpacked(grad_qkv[0]);
    const double causal = 2.0 * static_cast<double>(b * h * t * t * d);  // two products, half of each
    arithmetic("attention", causal,
               [&](const Ops& ops, int i) { ops.attention(unpacked(qkv[i]), true, out[i], lse); });
    for (int i = 0; i < kSets; ++i) fused_->attention(unpacked(qkv[i]), true, out[i], lse);
    arithmetic("attention_backward", 2.5 * causal, [&](const Ops& ops, int) {
      ops.attention_backward(grad[0], unpacked(qkv[0]), true, out[0], lse, grads);
    });
  }

  void head() {
    const std::int64_t n = std::min(kChunk, n_);
    const at::Tensor logits = rows(n, kPadded), scale = at::full({}, 1e-5, gpu(at::kFloat));
    const at::Tensor targets = at::randint(kVocab, {n}, gpu(at::kLong));
    at::Tensor work[2] = {logits.clone(), logits.clone()};
    at::Tensor loss = at::zeros({}, gpu(at::kDouble)), tokens = at::zeros({}, gpu(at::kDouble));
    const double bytes = 2.0 * static_cast<double>(n * kPadded);
    memory("cross_entropy, 4096 tokens", 2 * bytes, [&](const Ops& ops, int i) {
      ops.cross_entropy(work[i % 2], targets, kVocab, scale, loss, tokens);
    });
    memory("cross_entropy, loss only", bytes,
           [&](const Ops& ops, int) { ops.cross_entropy(work[0], targets, kVocab, {}, loss, tokens); });
  }

  void embedding() {
    const std::int64_t b = size_.batch, t = size_.length;
    const at::Tensor tokens = at::randint(kVocab, {b, t}, gpu(at::kLong)), wte = rows(kPadded, d_),
                     wpe = rows(1024, d_);
    at::Tensor x = at::empty({b, t, d_}, gpu(at::kBFloat16)), grad_wte = rows(kPadded, d_),
               grad_wpe = rows(1024, d_);
    memory("embed", slabs(2), [&](const Ops& ops, int) { ops.embed(tokens, wte, wpe, x); });
    memory("embed_backward, accumulate", slabs(4), [&](const Ops& ops, int) {
      ops.embed_part_backward(tokens, x.view({-1, d_}), {0, kPadded}, grad_wte, Write::accumulate);
      ops.positions_backward(x.view({-1, d_}), {0, b * t}, t, grad_wpe, Write::overwrite);
    });
  }

  void optimizer() {
    const std::int64_t n = 12 * d_ * d_ + 13 * d_;  // a block
    const auto count = static_cast<double>(n);
    Set g, p, m, v, p16;
    for (int i = 0; i < kSets; ++i) {
      g.push_back(vector(n)), p16.push_back(vector(n));
      for (Set* s : {&p, &m, &v}) s->push_back(at::zeros({n}, gpu(at::kFloat)));
    }
    const StepScalars scalars{at::full({}, 1e-3, gpu(at::kFloat)), at::full({}, 10, gpu(at::kLong)),
                              at::full({}, 1, gpu(at::kFloat))};
    const Range decay[] = {{2 * d_, 3 * d_ * d_}, {4 * d_ * d_, 5 * d_ * d_}, {6 * d_ * d_, 9 * d_ * d_}};
    const auto report = [](const char* what, double bytes, double us) {
      print(what, us, 0, bytes / kBytesPerSecond * 1e6, "TB/s", bytes);
    };
    report("adamw_step, a block", 28 * count, microseconds([&](int i) {
             const int s = i % kSets;
             adamw_step({}, scalars, decay, g[s], p[s], m[s], v[s], &p16[s]);
           }));
    at::Tensor sums = at::zeros({4}, gpu(at::kDouble));
    report("sum of squares, a block", 2 * count, microseconds([&](int i) {
             add_sums_of_squares({&g[i % kSets], 1}, sums);
           }));
  }

  Size size_;
  std::int64_t n_, d_;
  const std::unique_ptr<const Ops> fused_ = make_ops(OpsBackend::fused, DeviceKind::cuda),
                                   aten_ = make_ops(OpsBackend::aten, DeviceKind::cuda);
};

}  // namespace
}  // namespace sc

int main(int argc, char** argv) {
  const c10::InferenceMode guard;
  for (const sc::Size& size : sc::kSizes) {
    bool wanted = argc == 1;
    for (int i = 1; i < argc; ++i) wanted |= std::string(argv[i]) == size.name;
    if (wanted) sc::Bench(size).run();
  }
}
