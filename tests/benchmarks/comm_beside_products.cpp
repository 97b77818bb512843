// How much a collective slows down matrix products at the same time, and how long it takes: NCCL as the
// lessons use it, with its own choices, and in symmetric windows, which ranks reach directly and copy engines
// may gather.
//   mpirun -n 2 --bind-to none comm_beside_products > docs/results/comm_beside_products_2.json
// Not a test. Prints JSON on rank 0: median, lowest and highest over rounds in which all variants take turns,
// each for the slower rank. All operations of a measurement begin together with the products and end before
// them.
//   Source  NCCL user guide, "Window Registration" and "CTA Policy" (2.28).
//   Source  NCCL user guide, "Window Registration" and "CTA Policy" (2.28).
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>
#include <c10/cuda/CUDAGuard.h>
#include <nccl.h>
#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <iostream>
#include <memory>
#include <vector>

#include "common/comm/mpi/mpi_communicator.h"
#include "common/comm/nccl/cuda_check.h"
#include "common/comm/nccl/nccl_devices.h"
#include "common/gpu/gpu.h"
#include "common/run/describe.h"
#include "common/watch/gpu_moment.h"
#include "tests/benchmarks/rank_program.h"
#include "tests/benchmarks/timing.h"

namespace sc {
namespace {

using benchmark::kKinds, benchmark::quantile;

constexpr std::array<std::int64_t, 2> kSizes = {25 << 20, 100 << 20};  // bytes: a block of 355M, its unit 0
constexpr int kRounds = 9, kProducts = 96;
constexpr std::int64_t kRows = 16384, kIn = 1024, kOut = 4096;  // a product of 355M, 0.2 ms

/// A way to make a communicator, and the memory that it is given.
struct Variant {
  const char* name;
  int most_blocks;  // of NCCL's own: 0
  int policy;
  bool window;
};
constexpr std::array<Variant, 7> kVariants = {{
    {"16 blocks", 16, NCCL_CTA_POLICY_DEFAULT, false},
    {"NCCL's choice", 0, NCCL_CTA_POLICY_DEFAULT, false},
    {"efficiency", 0, NCCL_CTA_POLICY_EFFICIENCY, false},
    {"window", 0, NCCL_CTA_POLICY_DEFAULT, true},
    {"window, 16 blocks", 16, NCCL_CTA_POLICY_DEFAULT, true},
    {"window, efficiency", 0, NCCL_CTA_POLICY_EFFICIENCY, true},
    {"window, zero", 0, NCCL_CTA_POLICY_ZERO, true},
}};

/// The communicator of one variant, with memory of its own.
class Channel {
 public:
  Channel(const Variant& variant, Communicator& host) : variant_(variant), host_(host) {
    at::Tensor bytes = at::empty({NCCL_UNIQUE_ID_BYTES}, at::kByte);
    if (host.rank() == Rank{0})
      SC_CHECK(ncclGetUniqueId(static_cast<ncclUniqueId*>(bytes.mutable_data_ptr())));
    host.broadcast(bytes, Rank{0}).wait();
    ncclUniqueId id;
    std::memcpy(&id, bytes.const_data_ptr(), sizeof id);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    if (variant.most_blocks > 0) config.maxCTAs = variant.most_blocks;
    config.CTAPolicy = variant.policy;
    SC_CHECK(ncclCommInitRankConfig(&comm_, world(), id, static_cast<int>(to_int(host.rank())), &config));
    for (void** memory : {&full_, &shard_}) {
      if (!variant.window) {
        SC_CHECK(cudaMalloc(memory, kSizes.back()));
      } else {
        SC_CHECK(ncclMemAlloc(memory, kSizes.back()));
        SC_CHECK(ncclCommWindowRegister(comm_, *memory, kSizes.back(), &windows_.emplace_back(),
                                        NCCL_WIN_COLL_SYMMETRIC));
      }
      tensors_.push_back(at::from_blob(*memory, {kSizes.back() / 2},
                                       at::TensorOptions().dtype(at::kBFloat16).device(at::kCUDA)));
    }
  }
  ~Channel() {
    for (ncclWindow_t window : windows_) (void)ncclCommWindowDeregister(comm_, window);
    for (void* memory : {full_, shard_})
      (void)(variant_.window ? static_cast<int>(ncclMemFree(memory)) : static_cast<int>(cudaFree(memory)));
    (void)ncclCommDestroy(comm_);
  }
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  [[nodiscard]] const char* name() const { return variant_.name; }
  /// Fills the memory with random numbers, because sums in place double each time.
  void refill() {
    for (at::Tensor& t : tensors_) t.normal_();
  }
  void issue(int kind, std::int64_t bytes, cudaStream_t stream) {
    const std::size_t n = static_cast<std::size_t>(bytes) / 2, part = n / static_cast<std::size_t>(world());
    const auto type = ncclBfloat16;
    SC_CHECK(kind == 0   ? ncclAllReduce(full_, full_, n, type, ncclSum, comm_, stream)
             : kind == 1 ? ncclReduceScatter(full_, shard_, part, type, ncclSum, comm_, stream)
                         : ncclAllGather(shard_, full_, part, type, comm_, stream));
  }

 private:
  [[nodiscard]] int world() const { return static_cast<int>(to_int(host_.size())); }
  const Variant variant_;
  Communicator& host_;
  ncclComm_t comm_ = nullptr;
  void *full_ = nullptr, *shard_ = nullptr;
  std::vector<ncclWindow_t> windows_;
  std::vector<at::Tensor> tensors_;
};

struct Times {
  double products = 0, operations = 0;  // milliseconds, on their own streams
};

class Bench {
 public:
  explicit Bench(Communicator& host)
      : host_(host),
        compute_(c10::cuda::getStreamFromPool(false)),
        comm_(c10::cuda::getStreamFromPool(true)),
        x_(at::randn({kRows, kIn}, options())),
        w_(at::randn({kIn, kOut}, options())),
        y_(at::empty({kRows, kOut}, options())) {}

  /// Measures `products` and `repeats` operations that begin at once, after all ranks have met.
  Times measure(Channel& channel, int kind, std::int64_t bytes, int products, int repeats) {
    channel.refill();
    SC_CHECK(cudaDeviceSynchronize());
    host_.barrier();
    at::cuda::CUDAEvent start;
    GpuMomentPtr p0, p1, c0, c1;
    {
      const c10::cuda::CUDAStreamGuard on(compute_);
      at::mm_out(y_, x_, w_);  // the GPU computes while the host issues what is measured
      start.record(compute_);
      p0 = gpu_moment();
      for (int p = 0; p < products; ++p) at::mm_out(y_, x_, w_);
      p1 = gpu_moment();
    }
    {
      const c10::cuda::CUDAStreamGuard on(comm_);
      start.block(comm_);
      c0 = gpu_moment();
      for (int r = 0; r < repeats; ++r) channel.issue(kind, bytes, comm_.stream());
      c1 = gpu_moment();
    }
    SC_CHECK(cudaDeviceSynchronize());
    const auto ms = [](const GpuMomentPtr& from, const GpuMomentPtr& to) {
      return static_cast<double>(to->since(*from).value().count()) / 1e6;
    };
    return slower({ms(p0, p1), ms(c0, c1)});
  }

 private:
  // The times of the slowest rank.
  Times slower(const Times& mine) {
    at::Tensor own = at::tensor({mine.products, mine.operations}, at::kDouble),
               all = at::empty({2 * to_int(host_.size())}, at::kDouble);
    host_.all_gather(own, all).wait();
    Times worst;
    for (std::int64_t r = 0; r < to_int(host_.size()); ++r) {
      worst.products = std::max(worst.products, all.const_data_ptr<double>()[2 * r]);
      worst.operations = std::max(worst.operations, all.const_data_ptr<double>()[2 * r + 1]);
    }
    return worst;
  }
  static at::TensorOptions options() { return at::TensorOptions().dtype(at::kBFloat16).device(at::kCUDA); }
  Communicator& host_;
  c10::cuda::CUDAStream compute_, comm_;
  at::Tensor x_, w_, y_;
};

/// A cell of the results: one variant, kind and size.
struct Cell {
  Channel* channel;
  int kind;
  std::int64_t bytes;
  int repeats = 1;
  std::vector<double> alone, beside, taken;
};

// The number of repeats that ends well before the products, which make each operation slower. It is the same
// on all ranks, because their times are.
int repeats_of(const Cell& cell, Bench& bench, double products_ms) {
  int repeats = 1;
  for (int k = 0; k < 4; ++k) {
    const double one =
        bench.measure(*cell.channel, cell.kind, cell.bytes, kProducts, repeats).operations / repeats;
    repeats = std::max(1, static_cast<int>(0.7 * products_ms / one));
  }
  return repeats;
}

std::string spread(const char* name, std::vector<double> values) {
  const auto [lowest, highest] = std::minmax_element(values.begin(), values.end());
  return fmt::format("\"{}\": {{\"median\": {:.4f}, \"lowest\": {:.4f}, \"highest\": {:.4f}}}", name,
                     quantile(values, 0.5), *lowest, *highest);
}

std::string json_of(const Cell& c) {
  return fmt::format(
      "  {{\"variant\": \"{}\", \"kind\": \"{}\", \"bytes\": {}, \"repeats\": {}, {}, {}, {}}}",
      c.channel->name(), kKinds[c.kind], c.bytes, c.repeats, spread("alone_ms", c.alone),
      spread("beside_ms", c.beside), spread("taken_ms_an_operation", c.taken));
}

int run() {
  const c10::InferenceMode guard;
  const Launch launch = benchmark::launch_of_several("comm_beside_products");
  set_nccl_environment();
  const std::unique_ptr<Gpu> gpu = take_gpu(gpu_of(launch, /*share=*/false));
  MpiWorld mpi([](Bytes bytes) { return at::zeros({bytes.value()}, at::kByte); });
  const std::unique_ptr<Communicator> host = mpi.world();
  std::vector<std::unique_ptr<Channel>> channels;
  for (const Variant& v : kVariants) channels.push_back(std::make_unique<Channel>(v, *host));
  Bench bench(*host);
  std::vector<double> products;
  std::vector<Cell> cells;
  for (int warm = 0; warm < 100; ++warm) (void)bench.measure(*channels[0], 0, kSizes[0], kProducts, 1);
  const double estimate = bench.measure(*channels[0], 0, kSizes[0], kProducts, 0).products;
  for (const std::int64_t bytes : kSizes)
    for (int kind = 0; kind < 3; ++kind)
      for (const auto& channel : channels) cells.push_back({channel.get(), kind, bytes, 1, {}, {}, {}});
  for (Cell& cell : cells) cell.repeats = repeats_of(cell, bench, estimate);
  for (int round = 0; round < kRounds; ++round)
    for (Cell& cell : cells) {
      const double apart = bench.measure(*cell.channel, cell.kind, cell.bytes, kProducts, 0).products;
      products.push_back(apart);
      cell.alone.push_back(bench.measure(*cell.channel, cell.kind, cell.bytes, 0, cell.repeats).operations /
                           cell.repeats);
      const Times both = bench.measure(*cell.channel, cell.kind, cell.bytes, kProducts, cell.repeats);
      if (both.operations > both.products)
        throw DeviceError(fmt::format("{} of {}: {} operations lasted {:.2f} ms, the products {:.2f}",
                                      cell.channel->name(), kKinds[cell.kind], cell.repeats, both.operations,
                                      both.products));
      cell.beside.push_back(both.operations / cell.repeats);
      cell.taken.push_back((both.products - apart) / cell.repeats);
    }
  if (launch.rank == Rank{0}) {
    const GpuFacts facts = gpu->facts();
    std::cout << fmt::format(
        "{{\n \"ranks\": {},\n \"device\": \"{}\",\n \"driver\": \"{}\",\n \"nccl\": \"{}\",\n \"commit\": "
        "\"{}\",\n \"rounds\": "
        "{},\n \"product\": \"bf16 {} x {} x {}, {} in a row\",\n \"products_ms\": {:.3f},\n \"cells\": [\n",
        to_int(launch.world), facts.name, facts.driver, describe_nccl(), source_commit(), kRounds, kRows, kIn,
        kOut, kProducts, quantile(products, 0.5));
    for (std::size_t i = 0; i < cells.size(); ++i)
      std::cout << json_of(cells[i]) << (i + 1 < cells.size() ? ",\n" : "\n");
    std::cout << " ]\n}" << std::endl;
  }
  host->barrier();
  return 0;
}

}  // namespace
}  // namespace sc

int main() { return sc::benchmark::reported(sc::run); }
