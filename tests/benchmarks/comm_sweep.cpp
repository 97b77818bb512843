// Times of all_reduce, reduce_scatter and all_gather over sizes, between CPU ranks (MPI) or GPUs (NCCL):
//   mpirun -n 2 --bind-to none comm_sweep --help
// Not a test. tests/benchmarks/comm_sweep.py starts it and fits latency and bandwidth to what it prints.
#include <ATen/ops/from_blob.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cxxopts.hpp>
#include <iostream>
#include <memory>
#include <vector>

#include "common/comm/mpi/mpi_communicator.h"
#include "common/comm/nccl/nccl_communicator.h"
#include "common/comm/nccl/nccl_devices.h"
#include "common/gpu/gpu.h"
#include "common/run/describe.h"
#include "tests/benchmarks/rank_program.h"
#include "tests/benchmarks/timing.h"

namespace sc {
namespace {

using Clock = std::chrono::steady_clock;

using benchmark::kKinds, benchmark::quantile;

constexpr int kMostRepeats = 100;  // of an operation within one measurement

struct Options {
  bool gpu = false;
  bool windows = false;  // the vector lies in a window for sums: by copy engine
  at::ScalarType dtype = at::kFloat;
  std::int64_t least = 0, most = 0;  // bytes of the whole vector
  int rounds = 0;
  double round_seconds = 0;
};

/// One operation at one size, and what its rounds took.
struct Point {
  int kind = 0;
  std::int64_t elements = 0;  // of the whole vector, a multiple of the ranks
  int repeats = 1;            // within a round
  std::vector<double> seconds;
};

/// Tensors that every operation borrows from, and the communicator under test.
class Sweep {
 public:
  Sweep(Communicator& comm, const Options& options, at::Device device)
      : comm_(comm), options_(options), item_(static_cast<std::int64_t>(c10::elementSize(options.dtype))) {
    const std::int64_t most = elements_of(options.most);
    const at::TensorOptions as = at::TensorOptions().dtype(options.dtype).device(device);
    full_ = options.windows ? in_window(most, as) : at::ones({most}, as);
    shard_ = at::ones({most / world()}, full_.options());
    for (std::int64_t bytes = options.least; bytes <= options.most; bytes *= 2)
      for (int kind = 0; kind < 3; ++kind) points_.push_back({kind, elements_of(bytes), 1, {}});
  }

  /// Measures all points in rounds, so that whatever changes on the machine meanwhile affects all of them.
  void run() {
    for (Point& point : points_) point.repeats = choose_repeats(point);
    for (int round = 0; round < options_.rounds; ++round)
      for (Point& point : points_) point.seconds.push_back(measure(point));
  }

  [[nodiscard]] const std::vector<Point>& points() const { return points_; }
  [[nodiscard]] std::int64_t bytes(const Point& point) const { return point.elements * item_; }

 private:
  at::Tensor in_window(std::int64_t elements, const at::TensorOptions& options) {
    std::shared_ptr<void> memory = comm_.window(Bytes(elements * item_), WindowUse::sums);
    if (!memory)
      throw InputError(ExitCode::missing, "--windows", "these ranks do not reach each other's memory",
                       "leave it out");
    void* data = memory.get();
    return at::from_blob(
        data, {elements}, [memory = std::move(memory)](void*) {}, options);
  }
  [[nodiscard]] std::int64_t world() const { return to_int(comm_.size()); }
  [[nodiscard]] std::int64_t elements_of(std::int64_t bytes) const {
    return std::max<std::int64_t>(1, bytes / item_ / world()) * world();
  }

  Ticket issue(int kind, at::Tensor& full, at::Tensor& shard) {
    if (kind == 0) return comm_.all_reduce(full);
    return kind == 1 ? comm_.reduce_scatter(full, shard) : comm_.all_gather(shard, full);
  }

  void wait_for_device() const {
    if (!options_.gpu) return;
    for (const auto ended = ended_on_current_stream(); !ended();) {
    }
  }

  // The seconds of one operation on this rank: `repeats` of them one after the other, each waited for as a
  // lesson waits. Sums of ones stay finite or become infinity, which is added as fast.
  double measure(const Point& point) {
    at::Tensor full = full_.narrow(0, 0, point.elements),
               shard = shard_.narrow(0, 0, point.elements / world());
    full.fill_(1.0);
    wait_for_device();
    comm_.barrier();
    const auto start = Clock::now();
    at::Tensor own = full.narrow(0, to_int(comm_.rank()) * shard.numel(), shard.numel());
    at::Tensor& part = options_.windows && point.kind == 2 ? own : shard;  // lesson 10 gathers in place
    for (int k = 0; k < point.repeats; ++k) issue(point.kind, full, part).wait();
    wait_for_device();
    return std::chrono::duration<double>(Clock::now() - start).count() / point.repeats;
  }

  // The number of repeats that fills round_seconds, after some uncounted ones. Rank 0 decides for all.
  int choose_repeats(Point point) {
    double seconds = 0;
    for (int k = 0; k < 4; ++k) seconds = measure(point);
    const double fill = std::ceil(options_.round_seconds / std::max(seconds, 1e-9));
    at::Tensor chosen = at::zeros({1}, at::kDouble);
    chosen.fill_(std::clamp(fill, 1.0, static_cast<double>(kMostRepeats)));
    comm_.broadcast(chosen, Rank{0}).wait();
    return static_cast<int>(*chosen.const_data_ptr<double>());
  }

  Communicator& comm_;
  const Options options_;
  const std::int64_t item_;
  at::Tensor full_, shard_;
  std::vector<Point> points_;
};

std::string json_of(const Sweep& sweep, int kind) {
  std::string rows;
  for (const Point& p : sweep.points()) {
    if (p.kind != kind) continue;
    rows += fmt::format(
        "{}\n   {{\"bytes\": {}, \"repeats\": {}, \"seconds_median\": {:.4g}, \"seconds_p10\": {:.4g}, "
        "\"seconds_p90\": {:.4g}}}",
        rows.empty() ? "" : ",", sweep.bytes(p), p.repeats, quantile(p.seconds, 0.5),
        quantile(p.seconds, 0.1), quantile(p.seconds, 0.9));
  }
  return fmt::format("  {{\"kind\": \"{}\", \"sizes\": [{}]}}", kKinds[kind], rows);
}

void print(const Sweep& sweep, const Options& options, const Launch& launch, const Gpu* gpu) {
  const Hardware hardware = describe_hardware();
  const std::map<std::string, std::string> of = sc::versions();
  std::string versions =
      fmt::format("\"libtorch\": \"{}\", \"mpi\": \"{}\"", of.at("LibTorch"), of.at("MPI"));
  std::string device = hardware.cpu;
  if (gpu) {
    const GpuFacts facts = gpu->facts();
    device = facts.name;
    versions += fmt::format(", \"cuda\": \"{}\", \"driver\": \"{}\", \"nccl\": \"{}\"", facts.cuda,
                            facts.driver, describe_nccl());
  }
  std::cout << fmt::format(
      "{{\n \"ranks\": {},\n \"ranks_per_host\": {},\n \"device\": \"{}\",\n \"cores\": {},\n \"kind\": "
      "\"{}\",\n"
      " \"dtype\": \"{}\",\n \"rounds\": {},\n \"versions\": {{{}}},\n \"commit\": \"{}\",\n \"operations\": "
      "[\n",
      to_int(launch.world), to_int(launch.local_world), device, hardware.cores, gpu ? "gpu" : "cpu",
      options.dtype == at::kFloat ? "f32" : "bf16", options.rounds, versions, source_commit());
  for (int kind = 0; kind < 3; ++kind) std::cout << json_of(sweep, kind) << (kind < 2 ? ",\n" : "\n");
  std::cout << " ]\n}" << std::endl;
}

Options parse(int argc, char** argv) {
  cxxopts::Options flags("comm_sweep", "Times of collectives over sizes; JSON on rank 0's output.");
  auto add = flags.add_options();
  add("device", "cpu or cuda", cxxopts::value<std::string>()->default_value("cpu"));
  add("dtype", "f32 or bf16", cxxopts::value<std::string>()->default_value("f32"));
  add("min-bytes", "smallest vector", cxxopts::value<std::int64_t>()->default_value("1024"));
  add("max-bytes", "largest vector", cxxopts::value<std::int64_t>()->default_value("268435456"));
  add("rounds", "measurements of each size", cxxopts::value<int>()->default_value("25"));
  add("round-ms", "an operation is repeated for about so long in a measurement",
      cxxopts::value<double>()->default_value("5"));
  add("windows", "on GPUs: in memory that all ranks reach, by copy engine");
  add("help", "this text");
  const auto given = flags.parse(argc, argv);
  if (given.count("help") != 0) {
    std::cout << flags.help();
    std::exit(0);
  }
  const std::string device = given["device"].as<std::string>(), dtype = given["dtype"].as<std::string>();
  if (device != "cpu" && device != "cuda")
    throw InputError(ExitCode::usage, "--device", "'" + device + "' is neither cpu nor cuda", "--device cpu");
  if (dtype != "f32" && dtype != "bf16")
    throw InputError(ExitCode::usage, "--dtype", "'" + dtype + "' is neither f32 nor bf16", "--dtype f32");
  if (given.count("windows") != 0 && device != "cuda")
    throw InputError(ExitCode::usage, "--windows", "only GPUs have copy engines", "--device cuda");
  const Options options{.gpu = device == "cuda",
                        .windows = given.count("windows") != 0,
                        .dtype = dtype == "f32" ? at::kFloat : at::kBFloat16,
                        .least = given["min-bytes"].as<std::int64_t>(),
                        .most = given["max-bytes"].as<std::int64_t>(),
                        .rounds = given["rounds"].as<int>(),
                        .round_seconds = given["round-ms"].as<double>() / 1e3};
  if (options.least < 1 || options.most < options.least || options.rounds < 1)
    throw InputError(ExitCode::usage, "--min-bytes, --max-bytes, --rounds",
                     "are not 1 <= min <= max, rounds >= 1", "comm_sweep --help");
  return options;
}

int run(int argc, char** argv) {
  const Options options = parse(argc, argv);
  const Launch launch = benchmark::launch_of_several("comm_sweep");
  std::unique_ptr<Gpu> gpu;
  if (options.gpu) {
    set_nccl_environment();
    gpu = take_gpu(gpu_of(launch, /*share=*/false));
  }
  MpiWorld mpi([](Bytes bytes) { return at::zeros({bytes.value()}, at::kByte); });
  std::unique_ptr<Communicator> comm = mpi.world();
  if (gpu) comm = NcclCommunicator::make(std::move(comm), {.device = gpu->device().index()});
  Sweep sweep(*comm, options, gpu ? gpu->device() : at::Device(at::kCPU));
  sweep.run();
  if (launch.rank == Rank{0}) print(sweep, options, launch, gpu.get());
  comm->barrier();
  return 0;
}

}  // namespace
}  // namespace sc

int main(int argc, char** argv) {
  return sc::benchmark::reported([&] { return sc::run(argc, argv); });
}
