#include "common/run/world.h"

#include <spdlog/fmt/fmt.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <iostream>
#include <thread>

#include "common/comm/gather_text.h"
#include "common/comm/local_communicator.h"

namespace sc::detail {
namespace {

// Memory that all ranks of a host see; /tmp where there is none.
std::string board_directory() { return ::access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp"; }

}  // namespace

World::World(const Launch& launch, Ledger& ledger, const WorldOptions& options) : launch_(launch) {
  RecordOptions record;
  record.trace_steps = options.trace_steps;
  if (!launch.launched()) {
    board_.emplace(launch.world);
    record.board = &*board_;
    comm_.emplace(LocalWorld(1).communicator(Rank{0}), record);
  } else {
    mpi_ = std::make_unique<MpiWorld>([&ledger](Bytes bytes) {
      return ledger.allocate(Purpose::communication, "mpi scratch", {bytes.value()}, DType::u8);
    });
    check_launch(launch, mpi_->rank(), mpi_->size());
    std::unique_ptr<Communicator> world = mpi_->world();
    // Rank 0's process id and clock make a name that no other run has; ranks of other hosts make a board of
    // their own by it.
    const std::string name =
        broadcast_string(*world, fmt::format("stagecraft-{}-{}", ::getpid(),
                                             std::chrono::steady_clock::now().time_since_epoch().count()));
    board_.emplace(board_directory() + "/" + name, launch.world);
    record.board = &*board_;
    comm_.emplace(std::move(world), record);
  }
  WatchdogOptions watch;
  watch.limit = std::chrono::milliseconds(static_cast<std::int64_t>(options.watchdog_seconds * 1000));
  watch.on_sigterm = launch.launched();
  watch.abort = [this] {
    if (mpi_) mpi_->abort_job(static_cast<int>(ExitCode::lost_rank));
  };
  watchdog_.emplace(
      *board_, comm_->rank(), [this] { return comm_->record().outstanding(); }, std::move(watch));
  comm_->barrier();  // all have joined
  if (to_int(launch.local_rank) == 0) board_->remove_file();
}

void World::fail(ExitCode code, const std::string& text) noexcept {
  using namespace std::chrono_literals;
  if (board_->claim()) {
    std::cout.flush();
    std::cerr << "error: " << text << std::endl;
    board_->set_reported();
  } else {
    for (int i = 0; i < 40 && !board_->reported(); ++i) std::this_thread::sleep_for(50ms);
  }
  if (mpi_) mpi_->abort_job(static_cast<int>(code));
  ::_exit(static_cast<int>(code));
}

}  // namespace sc::detail
