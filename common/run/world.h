// The connected ranks of one run, and their watchdog.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "common/base/check.h"
#include "common/comm/mpi/mpi_communicator.h"
#include "common/comm/recording_communicator.h"
#include "common/gpu/gpu.h"
#include "common/memory/allocator_witness.h"
#include "common/memory/ledger.h"
#include "common/storage/checkpoint/reader.h"
#include "common/watch/deadline.h"
#include "common/watch/launch.h"
#include "common/watch/watchdog.h"

namespace sc::detail {

struct WorldOptions {
  double watchdog_seconds = 30;
  std::int64_t trace_steps = 0;
  std::optional<int> gpu;  // index of this rank's GPU; empty: on the CPU
  bool share_gpu = false;
  bool by_copy = true;      // between GPUs of one host: messages and sums of activations by copy engine
  double link_ms = 0;       // on the CPU: messages arrive this much later
  int last_unit = kNoUnit;  // of the model, for names of operations
  Mesh mesh = {};           // of the ranks, for their names
  /// Called before fail() ends the process without destructors. Never throws.
  std::function<void()> leaving = {};
};

/// The ranks of a run: without a launcher a world of one over Local, otherwise over MPI. On GPUs NCCL is
/// added on top, or Staged if ranks share a GPU. Collective.
class World {
 public:
  World(const Launch& launch, Ledger& ledger, const WorldOptions& options);
  ~World();

  [[nodiscard]] RecordingCommunicator& comm() { return *comm_; }
  [[nodiscard]] Watchdog& watchdog() { return *watchdog_; }
  /// Whether GPU operations issued from now on record when they began and ended, which costs launches.
  void time_operations(bool timed) { *operation_times_ = timed; }
  struct LastActs {
    /// Called once, by the rank that reports for the job, after its message and before the end.
    std::function<void(int exit_code, const std::string& message)> failed;
    /// Called by every rank that a signal asks to end, with the signal that run.sh received.
    std::function<void(int signal)> interrupted;
    /// Whether a run that SIGTERM asks to end saves first, after step stops_after(). The same on all ranks.
    bool saves = false;
  };
  /// Replaces the last acts, `{}` for none. Returns when no call is in progress. Callable from any thread.
  void set_last_acts(LastActs acts);
  /// The step after which all ranks save and call watchdog().end_now(). Empty: nobody has asked.
  [[nodiscard]] std::optional<std::int64_t> stops_after() const { return board_->stops_after(); }
  /// Calls WorldOptions::leaving, for an end that runs no destructors.
  void leave() const {
    if (leaving_) leaving_();
  }
  /// Prints the message of the exception being handled and ends all ranks with its code; silently, with the
  /// other's code, if another rank has reported for the job. Never returns.
  [[noreturn]] void fail() noexcept;

 private:
  void connect(Ledger& ledger, const WorldOptions& options);
  void start_watchdog(double limit_seconds);
  void speak(int exit_code, const std::string& text) noexcept;
  // The deadline for MPI's start and end, which no watchdog covers, when other ranks may be gone or hang.
  std::chrono::milliseconds edge_limit_;
  std::optional<Deadline> edge_;
  Launch launch_;
  std::function<void()> leaving_;
  std::mutex act_mutex_;
  LastActs last_acts_;
  std::shared_ptr<std::atomic<bool>> operation_times_ = std::make_shared<std::atomic<bool>>(false);
  std::unique_ptr<MpiWorld> mpi_;
  std::optional<ProgressBoard> board_;
  std::optional<RecordingCommunicator> comm_;
  std::optional<Watchdog> watchdog_;  // declared last, so that it ends first
};

/// What a run is built on. All of it outlives the run.
struct Ground {
  World& world;
  Ledger& ledger;
  AllocatorWitness& witness;             // LibTorch's allocator on the CPU
  Gpu* gpu;                              // LibTorch's allocator on a GPU; null on the CPU
  checkpoint::Reader* resume = nullptr;  // what the run resumes from
};

}  // namespace sc::detail
