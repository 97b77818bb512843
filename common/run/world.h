// The connected ranks of one run, and what watches over them.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "common/base/check.h"
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

  [[nodiscard]] RecordingCommunicator& comm() { return *comm_; }
  [[nodiscard]] Watchdog& watchdog() { return *watchdog_; }
  /// Prints `text` if no other rank has spoken for the job, and ends all ranks with `code`. Never returns.
  [[noreturn]] void fail(ExitCode code, const std::string& text) noexcept;

 private:
  Launch launch_;
  std::unique_ptr<MpiWorld> mpi_;
  std::optional<ProgressBoard> board_;
  std::optional<RecordingCommunicator> comm_;
  std::optional<Watchdog> watchdog_;  // last: ends first
};

}  // namespace sc::detail
