// What a collective takes from matrix products beside it, and how long it lasts: NCCL as the lessons use it, as it
// would choose, and in symmetric windows, memory that ranks reach directly and copy engines may gather.
//   mpirun -n 2 --bind-to none comm_beside_products > docs/results/comm_beside_products_2.json
// Not a test. JSON on rank 0's output; times are medians over rounds in which all variants take turns.
//   Source  NCCL user guide, "Window Registration" and "CTA Policy" (2.28).
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>
#include <c10/cuda/CUDAGuard.h>
#include <nccl.h>
#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <iostream>
#include <memory>
#include <vector>

#include "common/comm/cuda_check.h"
#include "common/comm/gpu_moment.h"
#include "common/comm/launch.h"
#include "common/comm/mpi_communicator.h"
#include "common/comm/nccl_devices.h"
#include "common/run/describe.h"
#include "common/run/gpu.h"

namespace sc {
namespace {

constexpr std::array<std::int64_t, 2> kSizes = {25 << 20, 100 << 20};  // bytes: a block of 355M, its unit 0
constexpr const char* kKinds[] = {"all_reduce", "reduce_scatter", "all_gather"};
constexpr int kRounds = 9, kProducts = 24;
constexpr std::int64_t kRows = 16384, kIn = 1024, kOut = 4096;  // a product of 355M, 0.2 ms

/// How a communicator is made, and what memory it is given.
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

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

/// A communicator of one variant with memory of its own.
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
      SC_CHECK(cudaMemset(*memory, 0, kSizes.back()));
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

  /// `products` and `repeats` operations at once, after all ranks have met.
  Times measure(Channel& channel, int kind, std::int64_t bytes, int products, int repeats) {
    SC_CHECK(cudaDeviceSynchronize());
    host_.barrier();
    GpuMomentPtr p0, p1, c0, c1;
    {
      const c10::cuda::CUDAStreamGuard on(comm_);
      c0 = gpu_moment();
      for (int r = 0; r < repeats; ++r) channel.issue(kind, bytes, comm_.stream());
      c1 = gpu_moment();
    }
    {
      const c10::cuda::CUDAStreamGuard on(compute_);
      p0 = gpu_moment();
      for (int p = 0; p < products; ++p) at::mm_out(y_, x_, w_);
      p1 = gpu_moment();
    }
    SC_CHECK(cudaDeviceSynchronize());
    const auto ms = [](const GpuMomentPtr& from, const GpuMomentPtr& to) {
      return static_cast<double>(to->since(*from).value().count()) / 1e6;
    };
    return {ms(p0, p1), ms(c0, c1)};
  }

 private:
  static at::TensorOptions options() { return at::TensorOptions().dtype(at::kBFloat16).device(at::kCUDA); }
  Communicator& host_;
  c10::cuda::CUDAStream compute_, comm_;
  at::Tensor x_, w_, y_;
};

/// One variant, kind and size.
struct Cell {
  Channel* channel;
  int kind;
  std::int64_t bytes;
  int repeats = 1;  // that last about half as long as the products
  std::vector<double> alone, beside, slowed;
};

// Rank 0 decides for all.
int repeats_of(const Cell& cell, Bench& bench, Communicator& host, double products_ms) {
  for (int k = 0; k < 2; ++k) (void)bench.measure(*cell.channel, cell.kind, cell.bytes, 0, 4);
  const double one = bench.measure(*cell.channel, cell.kind, cell.bytes, 0, 8).operations / 8;
  at::Tensor chosen = at::zeros({1}, at::kDouble);
  chosen.fill_(std::max(1.0, 0.5 * products_ms / one));
  host.broadcast(chosen, Rank{0}).wait();
  return static_cast<int>(*chosen.const_data_ptr<double>());
}

std::string json_of(const Cell& c, double products_ms) {
  const double per_ms = median(c.beside) * c.repeats;
  return fmt::format(
      "  {{\"variant\": \"{}\", \"kind\": \"{}\", \"bytes\": {}, \"repeats\": {}, \"alone_ms\": {:.4f}, "
      "\"beside_ms\": {:.4f}, "
      "\"products_ms\": {:.3f}, \"products_beside_ms\": {:.3f}, \"taken_ms_an_operation\": {:.4f}, "
      "\"share_of_its_time\": {:.3f}}}",
      c.channel->name(), kKinds[c.kind], c.bytes, c.repeats, median(c.alone), median(c.beside), products_ms,
      median(c.slowed), (median(c.slowed) - products_ms) / c.repeats,
      (median(c.slowed) - products_ms) / per_ms);
}

int run() {
  const c10::InferenceMode guard;
  const Launch launch = detect_launch(process_environment());
  if (to_int(launch.world) < 2)
    throw InputError(ExitCode::usage, "comm_beside_products", "needs at least two ranks",
                     "mpirun -n 2 --bind-to none comm_beside_products");
  set_nccl_environment();
  const Gpu gpu(gpu_of(launch, /*share=*/false));
  MpiWorld mpi([](Bytes bytes) { return at::zeros({bytes.value()}, at::kByte); });
  const std::unique_ptr<Communicator> host = mpi.world();
  std::vector<std::unique_ptr<Channel>> channels;
  for (const Variant& v : kVariants) channels.push_back(std::make_unique<Channel>(v, *host));
  Bench bench(*host);
  std::vector<double> products;
  std::vector<Cell> cells;
  for (int warm = 0; warm < 20; ++warm) (void)bench.measure(*channels[0], 0, kSizes[0], kProducts, 1);
  const double estimate = bench.measure(*channels[0], 0, kSizes[0], kProducts, 0).products;
  for (const std::int64_t bytes : kSizes)
    for (int kind = 0; kind < 3; ++kind)
      for (const auto& channel : channels) cells.push_back({channel.get(), kind, bytes, 1, {}, {}, {}});
  for (Cell& cell : cells) cell.repeats = repeats_of(cell, bench, *host, estimate);
  for (int round = 0; round < kRounds; ++round) {
    for (Cell& cell : cells) {
      products.push_back(bench.measure(*cell.channel, cell.kind, cell.bytes, kProducts, 0).products);
      cell.alone.push_back(bench.measure(*cell.channel, cell.kind, cell.bytes, 0, cell.repeats).operations /
                           cell.repeats);
      const Times both = bench.measure(*cell.channel, cell.kind, cell.bytes, kProducts, cell.repeats);
      cell.beside.push_back(both.operations / cell.repeats);
      cell.slowed.push_back(both.products);
    }
  }
  if (launch.rank == Rank{0}) {
    const GpuFacts facts = gpu.facts();
    std::cout << fmt::format(
        "{{\n \"ranks\": {},\n \"device\": \"{}\",\n \"nccl\": \"{}\",\n \"commit\": \"{}\",\n \"rounds\": "
        "{},\n \"product\": \"bf16 {} x {} x {}, {} in a row\",\n \"cells\": [\n",
        to_int(launch.world), facts.name, describe_nccl(), source_commit(), kRounds, kRows, kIn, kOut,
        kProducts);
    for (std::size_t i = 0; i < cells.size(); ++i)
      std::cout << json_of(cells[i], median(products)) << (i + 1 < cells.size() ? ",\n" : "\n");
    std::cout << " ]\n}" << std::endl;
  }
  host->barrier();
  return 0;
}

}  // namespace
}  // namespace sc

int main() {
  try {
    return sc::run();
  } catch (const sc::InputError& error) {
    std::cerr << "error: " << error.what() << '\n';
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << '\n';
    return 1;
  }
}
