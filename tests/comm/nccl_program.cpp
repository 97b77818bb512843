// The job that nccl_process_test.cpp breaks: steps of one all_reduce (window: one all_gather between windows;
// sum: by copy engine; message: a message to the next rank; each of these in a graph too) on GPUs under a
// watchdog, over MPI's ranks.
//   nccl_program <nccl|graph|window|message|sum|staged|refuse> <board file> <limit in ms> <fault as in
//   --inject, or stop@rank,step, or none>
// Exit 77, with the reason, if there are not enough GPUs.
// Exit 77, with the reason, where there are not enough GPUs.
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "common/comm/recording_communicator.h"
#include "common/comm/staged/staged_communicator.h"
#include "common/watch/fault.h"
#include "common/watch/watchdog.h"
#include "tests/comm/nccl_world.h"

namespace sc {
namespace {

constexpr int kSkipped = 77;

struct Arguments {
  std::string mode, board;
  std::chrono::milliseconds limit;
  std::string fault;
};

std::unique_ptr<Communicator> connect(MpiWorld& mpi, const std::string& mode, int device) {
  if (mode != "staged") return NcclCommunicator::make(mpi.world(), {.device = device});
  return StagedCommunicator::make(mpi.world(), device, [](Bytes bytes) {
    return at::empty({bytes.value()}, at::TensorOptions().dtype(at::kByte).pinned_memory(true));
  });
}

/// Waits on the host, as a run does in every step for its loss.
void read_back(const at::Tensor& t) { (void)t.cpu(); }

void break_if_asked(const std::string& fault, Communicator& comm, std::int64_t step) {
  const bool stop = fault.rfind("stop@", 0) == 0;
  const Fault parsed =
      fault == "none" ? Fault() : Fault::parse(stop ? "nan" + fault.substr(4) : fault, comm.size());
  const std::string mine = std::to_string(to_int(comm.rank())) + "," + std::to_string(step);
  if (fault != "none" && fault.substr(fault.find('@') + 1) == mine) {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    std::fprintf(stderr, "broken at %lld ms\n",
                 static_cast<long long>(std::chrono::duration_cast<std::chrono::milliseconds>(now).count()));
  }
  if (stop && parsed.nan_at(comm.rank(), step)) ::raise(SIGSTOP);
  parsed.at_step(comm.rank(), step);
}

void steps(RecordingCommunicator& comm, const Arguments& arguments, at::Device device) {
  const c10::cuda::CUDAStreamGuard guard(
      c10::cuda::getStreamFromPool(/*isHighPriority=*/true, device.index()));
  const bool windows = arguments.mode == "window", messages = arguments.mode == "message",
             graphed = windows || messages || arguments.mode == "graph" || arguments.mode == "sum";
  const at::TensorOptions options = at::TensorOptions().dtype(at::kFloat).device(device);
  constexpr std::int64_t kElements = 1 << 20;
  const auto ones_in_window = [&](std::int64_t n) {
    return test::in_window(comm, n, options, windows ? WindowUse::gathers : WindowUse::sums).fill_(1.0);
  };
  at::Tensor t =
      windows || arguments.mode == "sum" ? ones_in_window(kElements) : at::full({kElements}, 1.0, options);
  const at::Tensor shard = windows ? ones_in_window(kElements / to_int(comm.size())) : at::Tensor();
  at::Tensor received = messages ? at::full({kElements}, 0.0, options) : at::Tensor();
  const auto pass_on = [&] {
    const std::int64_t world = to_int(comm.size()), me = to_int(comm.rank());
    Ticket receive = comm.recv(received, Rank{static_cast<int>((me + world - 1) % world)});
    comm.send(t, Rank{static_cast<int>((me + 1) % world)}).wait();
    receive.wait();
    t.copy_(received);
  };
  const auto operation = [&] {
    if (messages) return pass_on();
    (windows ? comm.all_gather(shard, t) : comm.all_reduce(t)).wait();
  };
  at::cuda::CUDAGraph graph;
  comm.set_phase("train");
  for (std::int64_t step = 0; step < 10; ++step) {
    comm.set_step(step);
    break_if_asked(arguments.fault, comm, step);
    const bool replay = graphed && step >= 3;
    if (graphed && step == 2) {
      c10::cuda::getCurrentCUDAStream().synchronize();
      graph.capture_begin();
    }
    if (replay) {
      graph.replay();
      comm.record().replayed(ended_on_current_stream());
    } else {
      operation();
    }
    if (graphed && step == 2) {
      graph.capture_end();
      continue;
    }
    read_back(t);
  }
  comm.barrier();
}

int run(const Arguments& arguments) {
  const bool share = arguments.mode == "staged";
  const Launch launch = detect_launch(process_environment());
  if (arguments.mode == "refuse") {
    try {
      (void)gpu_of(launch, false);
    } catch (const InputError& error) {
      std::fprintf(stderr, "error: %s\n", error.what());  // each: mpirun ends the job with the first
      return static_cast<int>(error.code());
    }
    return 0;
  }
  if (const std::string reason = test::why_not(share); !reason.empty()) {
    std::fprintf(stderr, "skipped: %s\n", reason.c_str());
    return kSkipped;
  }
  set_nccl_environment();
  const int gpu = gpu_of(launch, share);
  MpiWorld mpi([](Bytes bytes) { return at::empty({bytes.value()}, at::kByte); });
  ProgressBoard board(arguments.board, launch.world);
  RecordingCommunicator comm(connect(mpi, arguments.mode, gpu), {.board = &board});
  WatchdogOptions options;
  options.limit = arguments.limit;
  options.on_sigterm = true;
  options.abort = [&] { mpi.abort_job(75); };
  Watchdog watchdog(
      board, launch.rank, [&] { return comm.record().outstanding(); }, options);
  std::fprintf(stderr, "pid %d\n", ::getpid());
  comm.barrier();
  steps(comm, arguments, at::Device(at::kCUDA, static_cast<at::DeviceIndex>(gpu)));
  return 0;
}

}  // namespace
}  // namespace sc

int main(int /*argc*/, char** argv) {
  try {
    return sc::run({argv[1], argv[2], std::chrono::milliseconds(std::atoi(argv[3])), argv[4]});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 70;
  }
}
