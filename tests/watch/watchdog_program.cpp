// The program that watchdog_process_test.cpp breaks: steps of one all_reduce each under a watchdog, over MPI
// if a launcher started it.
//   watchdog_program <board file> <limit in ms> <fault as in --inject, or stop@rank,step, or none>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "common/comm/local_communicator.h"
#include "common/comm/mpi/mpi_communicator.h"
#include "common/comm/recording_communicator.h"
#include "common/watch/fault.h"
#include "common/watch/launch.h"
#include "common/watch/watchdog.h"

namespace sc {
namespace {

struct Arguments {
  std::string board;
  std::chrono::milliseconds limit;
  std::string fault;
};

void steps(RecordingCommunicator& comm, Watchdog& watchdog, const std::string& fault_text) {
  const bool stop =
      fault_text.rfind("stop@", 0) == 0;  // SIGSTOP is no fault of --inject: nobody continues it
  const Fault fault = fault_text == "none"
                          ? Fault()
                          : Fault::parse(stop ? "nan" + fault_text.substr(4) : fault_text, comm.size());
  at::Tensor t = at::full({1000}, 1.0);
  comm.set_phase("train");
  for (std::int64_t step = 0; step < 10; ++step) {
    comm.set_step(step);
    watchdog.step_begin(step);
    if (stop && fault.nan_at(comm.rank(), step)) ::raise(SIGSTOP);
    fault.at_step(comm.rank(), step);
    comm.all_reduce(t).wait();
    watchdog.step_end();
  }
  comm.barrier();
}

int run(const Arguments& arguments) {
  const Launch launch = detect_launch(process_environment());
  std::unique_ptr<MpiWorld> mpi;
  LocalWorld alone(1);
  if (launch.launched())
    mpi = std::make_unique<MpiWorld>([](Bytes bytes) { return at::empty({bytes.value()}, at::kByte); });
  if (mpi) check_launch(launch, mpi->rank(), mpi->size());
  ProgressBoard board(arguments.board, launch.world);
  RecordingCommunicator comm(mpi ? mpi->world() : alone.communicator(Rank{0}), {.board = &board});
  WatchdogOptions options;
  options.limit = arguments.limit;
  options.on_sigterm = true;
  if (mpi) options.abort = [&] { mpi->abort_job(75); };
  Watchdog watchdog(
      board, launch.rank, [&] { return comm.record().outstanding(); }, options);
  std::fprintf(stderr, "pid %d\n", ::getpid());
  comm.barrier();
  try {
    steps(comm, watchdog, arguments.fault);
  } catch (const std::exception& error) {
    if (board.claim())
      std::fprintf(stderr, "error: rank %d: %s\n", static_cast<int>(launch.rank), error.what());
    board.set_reported(70);
    if (mpi) mpi->abort_job(70);
    return 70;
  }
  return 0;
}

}  // namespace
}  // namespace sc

int main(int /*argc*/, char** argv) {
  return sc::run({argv[1], std::chrono::milliseconds(std::atoi(argv[2])), argv[3]});
}
