// Runs each of our kernels on fixed inputs and writes its results, byte for byte, one file per output, so
// that the results of machine code and of PTX for another architecture can be compared
// (tests/gpu/other_architectures.sh).
//   usage   kernel_bits FOLDER
//   Prints  the GPU, and the PTX that the kernels were compiled from: "9.0 80" is PTX of 8.0 on a GPU of 9.0.
// Nothing of LibTorch runs here: its kernels have no PTX for this GPU, so under CUDA_FORCE_PTX_JIT=1 they
// could not.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>
#include <spdlog/fmt/fmt.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <vector>

#include "common/base/cuda_check.h"
#include "common/gpu/loadable.h"
#include "common/model/fused/kernels.h"
#include "common/optim/cuda_kernels.h"

namespace sc {
namespace {

constexpr DType kDtypes[] = {DType::f32, DType::bf16, DType::f16};

struct Free {
  void operator()(void* device) const { (void)cudaFree(device); }
};

/// The device memory of one operation. Inputs are numbers that follow from their place, outputs begin as NaN.
class Case {
 public:
  Case(std::filesystem::path folder, std::string name) : folder_(std::move(folder)), name_(std::move(name)) {}

  void* bytes(std::int64_t count, int fill) {
    void* device = nullptr;
    SC_CHECK(cudaMalloc(&device, static_cast<std::size_t>(count)));
    held_.emplace_back(device);
    SC_CHECK(cudaMemset(device, fill, static_cast<std::size_t>(count)));
    return device;
  }
  template <class T>
  T* copy(const std::vector<T>& host) {
    void* device = bytes(static_cast<std::int64_t>(host.size() * sizeof(T)), 0);
    SC_CHECK(cudaMemcpy(device, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice));
    return static_cast<T*>(device);
  }
  /// An input of n numbers in [-1, 1).
  void* input(DType dtype, std::int64_t n) {
    if (dtype == DType::f32) return numbers<float>(n, [](float x) { return x; });
    if (dtype == DType::bf16) return numbers<__nv_bfloat16>(n, __float2bfloat16_rn);
    return numbers<__half>(n, __float2half_rn);
  }
  float* floats(std::int64_t n) { return static_cast<float*>(input(DType::f32, n)); }
  /// An input of random tokens in [0, below).
  std::int64_t* tokens(std::int64_t n, std::int64_t below) {
    std::vector<std::int64_t> host(static_cast<std::size_t>(n));
    for (std::int64_t& token : host)
      token = static_cast<std::int64_t>(next() % static_cast<std::uint64_t>(below));
    return copy(host);
  }
  void* output(const std::string& name, DType dtype, std::int64_t n) {
    return note(name, dtype, n, bytes(n * size_of(dtype), 0xFF));
  }
  float* sums(const std::string& name, std::int64_t n) {
    return static_cast<float*>(output(name, DType::f32, n));
  }
  /// Notes an output, or an input that the operation changes.
  void* note(const std::string& name, DType dtype, std::int64_t n, void* device) {
    outputs_.push_back({fmt::format("{} {}.{}", name_, name, name_of(dtype)), n * size_of(dtype), device});
    return device;
  }
  void write() {
    SC_CHECK(cudaGetLastError());
    SC_CHECK(cudaDeviceSynchronize());
    for (const Output& output : outputs_) {
      std::vector<char> host(static_cast<std::size_t>(output.bytes));
      SC_CHECK(cudaMemcpy(host.data(), output.device, host.size(), cudaMemcpyDeviceToHost));
      std::ofstream(folder_ / output.name, std::ios::binary).write(host.data(), output.bytes);
    }
  }

 private:
  struct Output {
    std::string name;
    std::int64_t bytes;
    void* device;
  };
  std::uint64_t next() {  // splitmix64
    std::uint64_t z = (state_ += 0x9E3779B97F4A7C15U);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    return z ^ (z >> 31);
  }
  template <class T, class F>
  T* numbers(std::int64_t n, const F& rounded) {
    std::vector<T> host(static_cast<std::size_t>(n));
    for (T& x : host) x = rounded(static_cast<float>(next() >> 40) / static_cast<float>(1 << 23) - 1);
    return copy(host);
  }
  std::filesystem::path folder_;
  std::string name_;
  std::uint64_t state_ = 1;
  std::vector<std::unique_ptr<void, Free>> held_;
  std::vector<Output> outputs_;
};

void norms(const std::filesystem::path& folder, DType t, std::int64_t rows, std::int64_t d) {
  const std::string shape = fmt::format("{} {}x{}", name_of(t), rows, d);
  {
    Case c(folder, "layer_norm " + shape);
    fused::layer_norm({t, rows, d, c.input(t, rows * d), c.input(t, d), c.input(t, d),
                       c.output("y", t, rows * d), c.sums("mean", rows), c.sums("rstd", rows)},
                      nullptr);
    c.write();
  }
  Case c(folder, "layer_norm_backward " + shape);
  fused::layer_norm_backward(
      {t, rows, d, c.input(t, rows * d), c.input(t, rows * d), c.floats(rows), c.floats(rows), c.input(t, d),
       c.input(t, rows * d), c.output("grad_x", t, rows * d), c.sums("of_weight", d), c.sums("of_bias", d),
       c.sums("of_residual", d), c.sums("of_grad_x", d)},
      c.bytes(fused::layer_norm_backward_scratch_bytes(d), 0), nullptr);
  c.write();
}

void columns(const std::filesystem::path& folder, DType t, std::int64_t rows, std::int64_t d) {
  const std::string shape = fmt::format("{} {}x{}", name_of(t), rows, d);
  {
    Case c(folder, "column_sums " + shape);
    fused::column_sums({t, rows, d, c.input(t, rows * d), c.sums("sums", d)},
                       c.bytes(fused::column_scratch_bytes(d), 0), nullptr);
    c.write();
  }
  {
    Case c(folder, "gelu " + shape);
    fused::gelu(t, rows * d, c.input(t, rows * d), c.output("y", t, rows * d), nullptr);
    c.write();
  }
  {
    Case c(folder, "gelu_backward " + shape);
    void* grad = c.note("grad", t, rows * d, c.input(t, rows * d));
    fused::gelu_backward({t, rows, d, grad, c.input(t, rows * d), c.sums("sums", d)},
                         c.bytes(fused::column_scratch_bytes(d), 0), nullptr);
    c.write();
  }
  for (const bool accumulate : {false, true}) {
    Case c(folder, fmt::format("store_sums{} {}", accumulate ? " added" : "", shape));
    fused::StoreSums op{.dtype = t, .accumulate = accumulate, .count = 1};
    op.part[0] = {c.floats(d), c.note("grad", t, d, c.input(t, d)), d};
    fused::store_sums(op, nullptr);
    c.write();
  }
}

void embeddings(const std::filesystem::path& folder, DType t, std::int64_t length, std::int64_t d) {
  constexpr std::int64_t kBatch = 2, kVocab = 500;
  const std::string shape = fmt::format("{} {}x{}x{}", name_of(t), kBatch, length, d);
  const std::int64_t n = kBatch * length;
  {
    Case c(folder, "embed " + shape);
    fused::embed({t, n, d, 0, kVocab, c.tokens(n, kVocab), c.input(t, kVocab * d), c.input(t, length * d),
                  c.output("x", t, n * d), length},
                 nullptr);
    c.write();
  }
  for (const bool accumulate : {false, true}) {
    Case c(folder, fmt::format("embed_backward{} {}", accumulate ? " added" : "", shape));
    void* wte = c.note("grad_wte", t, kVocab * d, c.input(t, kVocab * d));
    void* wpe = c.note("grad_wpe", t, length * d, c.input(t, length * d));
    const std::int64_t* tokens = c.tokens(n, kVocab);
    const void* grad_x = c.input(t, n * d);
    fused::embed_backward({t, t, n, d, 0, kVocab, tokens, grad_x, wte, accumulate},
                          c.bytes(fused::embed_backward_scratch_bytes(n, kVocab), 0), nullptr);
    fused::positions_backward({t, t, n, d, 0, length, length, grad_x, wpe, accumulate}, nullptr);
    c.write();
  }
}

// Operations of the second of two tensor ranks: rows from 192 on of the vocabulary, tokens from 100 on of the
// micro-batch.
void parts(const std::filesystem::path& folder, DType t, std::int64_t length, std::int64_t d) {
  constexpr std::int64_t kFirst = 192, kRows = 320, kBegin = 100;
  const std::int64_t n = 2 * length;
  Case c(folder, fmt::format("embed_part {} 2x{}x{}", name_of(t), length, d));
  const std::int64_t* tokens = c.tokens(n, kFirst + kRows);
  const void* rows = c.input(t, n * d);
  fused::embed({t, n, d, kFirst, kRows, tokens, c.input(t, kRows * d), nullptr, c.output("x", t, n * d)},
               nullptr);
  fused::embed_backward({t, t, n, d, kFirst, kRows, tokens, rows, c.output("grad_wte", t, kRows * d), false},
                        c.bytes(fused::embed_backward_scratch_bytes(n, kRows), 0), nullptr);
  fused::positions_backward(
      {t, t, n - kBegin, d, kBegin, length, length, rows, c.output("grad_wpe", t, length * d), false},
      nullptr);
  fused::add_norm({{t, n, d, rows, c.input(t, d), c.input(t, d), c.output("y", t, n * d), c.sums("mean", n),
                    c.sums("rstd", n)},
                   c.input(t, d),
                   c.input(t, n * d),
                   c.output("added", t, n * d)},
                  nullptr);
  c.write();
}

void losses_of_parts(const std::filesystem::path& folder, DType t, std::int64_t rows, std::int64_t columns) {
  const std::int64_t padded = (columns + 63) / 64 * 64;
  for (const bool gradient : {false, true}) {
    Case c(folder,
           fmt::format("softmax_part{} {} {}x{}", gradient ? "" : " loss", name_of(t), rows, columns));
    void* logits = c.input(t, rows * padded);
    float* statistics = c.sums("statistics", 2 * rows);
    auto* totals = c.copy(std::vector<double>{0, 0});
    c.note("totals", DType::f64, 2, totals);
    if (gradient) c.note("grad", t, rows * padded, logits);
    fused::softmax_part({t, rows, columns, padded, logits, statistics}, nullptr);
    fused::softmax_gradient({t, rows, columns, columns, padded, 1, logits, c.tokens(rows, 2 * columns),
                             statistics, gradient ? c.floats(1) : nullptr, totals, totals + 1},
                            c.bytes(fused::cross_entropy_scratch_bytes(), 0),
                            static_cast<unsigned*>(c.bytes(4096, 0)), nullptr);
    c.write();
  }
}

// A block has too little shared memory for 120,000 logits of 16 bits, so those kernels read a row twice.
void losses(const std::filesystem::path& folder, DType t, std::int64_t rows, std::int64_t vocab) {
  const std::int64_t padded = (vocab + 63) / 64 * 64;
  for (const bool gradient : {false, true}) {
    Case c(folder, fmt::format("cross_entropy{} {} {}x{}", gradient ? "" : " loss", name_of(t), rows, vocab));
    void* logits = c.input(t, rows * padded);
    if (gradient) c.note("grad", t, rows * padded, logits);
    auto* totals = c.copy(std::vector<double>{0, 0});
    c.note("totals", DType::f64, 2, totals);
    fused::cross_entropy({t, rows, vocab, padded, logits, c.tokens(rows, vocab),
                          gradient ? c.floats(1) : nullptr, totals, totals + 1},
                         c.bytes(fused::cross_entropy_scratch_bytes(), 0),
                         static_cast<unsigned*>(c.bytes(4096, 0)), nullptr);
    c.write();
  }
}

void updates(const std::filesystem::path& folder, DType t, std::int64_t n) {
  {
    Case c(folder, fmt::format("adamw {} {}", name_of(t), n));
    auto* param = static_cast<float*>(c.note("param", DType::f32, n, c.floats(n)));
    auto* m = static_cast<float*>(c.note("m", DType::f32, n, c.floats(n)));
    auto* v = static_cast<float*>(c.note("v", DType::f32, n, c.bytes(n * 4, 0x3C)));  // small and positive
    const DType half = t == DType::f16 ? DType::f16 : DType::bf16;
    const Range decay[] = {{0, n / 2}};
    fused::adamw(
        {}, decay,
        {n, t, half, c.input(t, n), param, m, v, c.output("param16", half, n), c.copy(std::vector{1e-3F}),
         c.copy(std::vector{0.7F}), c.copy(std::vector<std::int64_t>{3})},
        nullptr);
    c.write();
  }
  Case c(folder, fmt::format("norm {} {}", name_of(t), n));
  auto* sums = c.copy(std::vector<double>{1, 2, 3, 4});
  c.note("sums", DType::f64, 4, sums);
  fused::SumsOfSquares op{.dtype = t, .squares = sums};
  op.add(c.input(t, n), n);
  op.add(c.input(t, 1000), 1000);
  fused::add_sums_of_squares(op, c.bytes(op.scratch_bytes(), 0), static_cast<unsigned*>(c.bytes(4096, 0)),
                             nullptr);
  fused::finish_sums(sums, nullptr);
  fused::norm_and_clip(
      {sums, 1.0F, c.sums("norm", 1), c.sums("clip", 1),
       static_cast<std::int64_t*>(c.note("step", DType::i64, 1, c.bytes(8, 0))), nullptr, nullptr},
      nullptr);
  c.write();
}

int run(const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  for (const DType t : kDtypes) {
    for (const std::int64_t d : {64, 768, 1024, 1600, 2048}) {
      for (const std::int64_t rows : {7, 1037}) {
        norms(folder, t, rows, d);
        columns(folder, t, rows, d);
      }
      embeddings(folder, t, 257, d);
      parts(folder, t, 257, d);
    }
    for (const std::int64_t vocab : {500, 50257, 120000}) losses(folder, t, 131, vocab);
    for (const std::int64_t columns : {500, 25152}) losses_of_parts(folder, t, 131, columns);
    for (const std::int64_t n : {1037, 1000003}) updates(folder, t, n);
  }
  cudaDeviceProp gpu{};
  SC_CHECK(cudaGetDeviceProperties(&gpu, 0));
  cudaFuncAttributes loaded{};
  SC_CHECK(load_a_kernel(loaded));
  fmt::print("{}.{} {}\n", gpu.major, gpu.minor, loaded.ptxVersion);
  return 0;
}

}  // namespace
}  // namespace sc

int main(int argc, char** argv) {
  if (argc != 2) {
    fmt::print(stderr, "error: command line: one folder\n  fix: kernel_bits FOLDER\n");
    return 64;
  }
  try {
    return sc::run(argv[1]);
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 69;
  }
}
