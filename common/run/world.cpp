#include "common/run/world.h"

#include <c10/util/Exception.h>
#include <spdlog/fmt/fmt.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <iostream>
#include <thread>
#include <utility>

#include "common/base/message.h"
#include "common/comm/gather_text.h"
#include "common/comm/late_messages.h"
#include "common/comm/local_communicator.h"
#include "common/comm/nccl/nccl_communicator.h"
#include "common/comm/staged/staged_communicator.h"

namespace sc::detail {
namespace {

// A directory that all ranks of a host see: in memory, or otherwise /tmp.
std::string board_directory() { return ::access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp"; }

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
}

std::string edge_text(const Launch& launch, const char* what, std::chrono::milliseconds limit) {
  return fmt::format(
      "rank {}: the {} ranks did not {} within {} s\n  fix: start again; on several hosts, see that "
      "they reach each other (mpirun --mca btl_base_verbose 30 says over which interface)",
      to_int(launch.rank), to_int(launch.world), what, limit.count() / 1000);
}

// The exit code and text with which a rank reports the exception being handled.
std::pair<ExitCode, std::string> current_failure(Rank rank) {
  const std::string who = fmt::format("rank {}: ", to_int(rank));
  try {
    throw;
  } catch (const AbortedError&) {
    return {ExitCode::lost_rank, "another rank ended the run"};  // that rank reports first
  } catch (const InputError& error) {
    return {error.code(), error.what()};
  } catch (const ClaimError& error) {
    return {ExitCode::claim, error.what()};
  } catch (const c10::Error& error) {  // without LibTorch's stack trace
    return {ExitCode::claim, who + error.what_without_backtrace()};
  } catch (const std::exception& error) {
    return {ExitCode::claim, who + error.what()};
  }
}

// Makes the communicator that strategies use from the host's.
std::unique_ptr<Communicator> for_strategies(std::unique_ptr<Communicator> host, Ledger& ledger,
                                             const WorldOptions& options,
                                             std::shared_ptr<const std::atomic<bool>> trace) {
  if (options.link_ms > 0)
    return std::make_unique<LateMessages>(std::move(host),
                                          std::chrono::nanoseconds(std::llround(options.link_ms * 1e6)));
  if (!options.gpu) return host;
  if (!options.share_gpu)
    return NcclCommunicator::make(std::move(host), {.device = *options.gpu,
                                                    .trace = std::move(trace),
                                                    .messages_by_copy = options.by_copy,
                                                    .sums_by_copy = options.by_copy});
  return StagedCommunicator::make(std::move(host), *options.gpu, [&ledger](Bytes bytes) {
    return ledger.allocate(Purpose::communication, "staged scratch", {bytes.value()}, DType::u8,
                           Place::pinned);
  });
}

}  // namespace

World::World(const Launch& launch, Ledger& ledger, const WorldOptions& options)
    // Starting takes a while on a busy host, whatever the limit of an operation is.
    : edge_limit_(milliseconds(std::max(30.0, options.watchdog_seconds))),
      launch_(launch),
      leaving_(options.leaving) {
  if (launch.launched()) edge_.emplace(edge_limit_, edge_text(launch, "start together", edge_limit_));
  connect(ledger, options);
  board_->set_mesh(options.mesh);
  start_watchdog(options.watchdog_seconds);
  comm_->barrier();  // all have joined
  if (to_int(launch.local_rank) == 0) board_->remove_file();
  edge_.reset();
  leave_sign("joined", process_environment());
}

void World::connect(Ledger& ledger, const WorldOptions& options) {
  std::unique_ptr<Communicator> world;
  if (!launch_.launched()) {
    board_.emplace(launch_.world);
    world = LocalWorld(1).communicator(Rank{0});
  } else {
    const Place place = options.gpu ? Place::pinned : Place::device;
    mpi_ = std::make_unique<MpiWorld>([&ledger, place](Bytes bytes) {
      return ledger.allocate(Purpose::communication, "mpi scratch", {bytes.value()}, DType::u8, place);
    });
    check_launch(launch_, mpi_->rank(), mpi_->size());
    world = mpi_->world();
    // Rank 0's process id and clock make a name that no other run has. Ranks on other hosts use the name for
    // a board of their own.
    const std::string name =
        broadcast_string(*world, fmt::format("stagecraft-{}-{}", ::getpid(),
                                             std::chrono::steady_clock::now().time_since_epoch().count()));
    board_.emplace(board_directory() + "/" + name, launch_.world);
  }
  comm_.emplace(
      for_strategies(std::move(world), ledger, options, operation_times_),
      RecordOptions{.trace_steps = options.trace_steps, .board = &*board_, .last_unit = options.last_unit});
}

void World::start_watchdog(double limit_seconds) {
  constexpr int kLost = static_cast<int>(ExitCode::lost_rank);
  // A signal reaches the ranks of one host together; ranks of several hosts could not agree on a step.
  const auto ends_by_itself = [this] {
    const std::lock_guard lock(act_mutex_);
    const bool ends = last_acts_.saves && launch_.local_world == launch_.world &&
                      signal_asked(SIGTERM, process_environment()) == SIGTERM;
    if (ends) board_->ask_to_stop();
    return ends;
  };
  const auto interrupted = [this](int signal) {
    const std::lock_guard lock(act_mutex_);
    if (last_acts_.interrupted) last_acts_.interrupted(signal_asked(signal, process_environment()));
  };
  const auto abort = [this] {
    if (mpi_) mpi_->abort_job(kLost);
  };
  watchdog_.emplace(
      *board_, comm_->rank(), [this] { return comm_->record().outstanding(); },
      WatchdogOptions{.limit = milliseconds(limit_seconds),
                      .step_limit = {},
                      .on_sigterm = true,
                      .on_sigint = !launch_.launched(),
                      .ends_by_itself = ends_by_itself,
                      .interrupted = interrupted,
                      .print = [this](const std::string& text) { speak(kLost, text); },
                      .abort = abort});
}

World::~World() {
  if (launch_.launched()) edge_.emplace(edge_limit_, edge_text(launch_, "end together", edge_limit_));
}

void World::set_last_acts(LastActs acts) {
  const std::lock_guard lock(act_mutex_);
  last_acts_ = std::move(acts);
}

void World::speak(int exit_code, const std::string& text) noexcept {
  std::cout.flush();
  say_error(text);
  leave_sign("spoke", process_environment());
  const std::lock_guard lock(act_mutex_);
  if (last_acts_.failed) last_acts_.failed(exit_code, text);
}

// [anchor: one-error-for-all]
void World::fail() noexcept {
  using namespace std::chrono_literals;
  const auto [code, text] = current_failure(launch_.rank);
  int exit_code = static_cast<int>(code);
  if (board_->claim()) {
    speak(exit_code, text);
    board_->set_reported(exit_code);
  } else {
    for (int i = 0; i < 40 && !board_->reported(); ++i) std::this_thread::sleep_for(50ms);
    exit_code = board_->reported().value_or(exit_code);
  }
  leave();
  if (mpi_) mpi_->abort_job(exit_code);
  ::_exit(exit_code);
}

}  // namespace sc::detail
