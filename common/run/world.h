// The connected ranks of one run, and what watches over them.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "common/base/check.h"
#include "common/comm/deadline.h"
#include "common/comm/launch.h"
#include "common/comm/mpi_communicator.h"
#include "common/comm/recording_communicator.h"
#include "common/comm/watchdog.h"
#include "common/memory/ledger.h"

namespace sc::detail {

struct WorldOptions {
  double watchdog_seconds = 30;
  std::int64_t trace_steps = 0;
};

/// Without a launcher a world of one, over Local; else over MPI. Collective.
class World {
 public:
  World(const Launch& launch, Ledger& ledger, const WorldOptions& options);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  [[nodiscard]] RecordingCommunicator& comm() { return *comm_; }
  [[nodiscard]] Watchdog& watchdog() { return *watchdog_; }
  /// Prints `text` and ends all ranks with `code`; if another rank has spoken for the job, silently and with
  /// that one's code. Never returns.
  [[noreturn]] void fail(ExitCode code, const std::string& text) noexcept;

 private:
  // Where the watchdog is not there: MPI's start and end. The others may be gone, or hang.
  std::chrono::milliseconds edge_limit_;
  std::optional<Deadline> edge_;
  Launch launch_;
  std::unique_ptr<MpiWorld> mpi_;
  std::optional<ProgressBoard> board_;
  std::optional<RecordingCommunicator> comm_;
  std::optional<Watchdog> watchdog_;  // last: ends first
};

}  // namespace sc::detail
