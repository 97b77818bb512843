// Ends hanging runs: a thread notices when this rank waits too long, says which rank is missing, and ends the
// job. No torch, no MPI.
#pragma once

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "common/base/message.h"
#include "common/watch/comm_record.h"
#include "common/watch/progress_board.h"

namespace sc {

struct WatchdogOptions {
  /// How long an operation may be outstanding while no other rank of this host moves. For a transfer to or
  /// from the disk it is counted from the end of the last transfer.
  std::chrono::milliseconds limit{30'000};
  /// How long a step may pass without an operation, moved() or step_begin(). Unset: `limit` in a world of
  /// one, where no other rank would notice, otherwise ten times that. 0: no limit.
  std::optional<std::chrono::milliseconds> step_limit;
  /// Whether to handle SIGTERM, which mpirun sends to the remaining ranks, and SIGUSR1, which it forwards
  /// without acting on it: exit 75 with a message if a rank of this host died, otherwise exit 143.
  bool on_sigterm = false;
  /// Whether to handle SIGINT and SIGHUP in the same way, with exit 130 and 129. Under a launcher they arrive
  /// as SIGTERM.
  bool on_sigint = false;
  /// Asked once, at SIGTERM: will the run end by itself, with Watchdog::end_now()? Then it may take its time,
  /// unless it hangs.
  std::function<bool()> ends_by_itself = [] { return false; };
  /// Called with the signal that ends this rank, unless a rank died, for its last words.
  std::function<void(int signal)> interrupted = [](int) {};
  /// Prints the message, once per job; by default to stderr with "error: " before it.
  std::function<void(const std::string&)> print = say_error;
  /// Asks for the end of all ranks, e.g. MpiWorld::abort_job(75). May block, and may not return.
  std::function<void()> abort = [] {};
  /// Ends this process, `last_words` after `abort` was called.
  std::function<void(int)> exit = ::_exit;
  std::chrono::milliseconds last_words{1000};
};

/// Watches one rank. Its thread also updates the rank's heartbeat on the board.
///   Expiry   an operation of this rank outlives the limit, a step stands still (step_limit), or the process
///            of a rank on this host has been gone for 2 s. Then the first watchdog of the job to notice
///            prints one message that names the missing ranks with their last operation and step; all
///            watchdogs call `abort`, and 1 s later `exit(75)`.
///   Time     counts only while this process runs, so that stopping and continuing a job (^Z) does no harm.
///   Silence  whoever claims the board prints the job's message: a rank that ends with an error of its own
///            calls board.claim() before it prints, and no watchdog adds a second message.
class Watchdog {
 public:
  using Outstanding = std::function<std::vector<OutstandingOp>()>;

  /// Joins `rank` to the board. `outstanding` is CommRecord::outstanding, called from the watchdog's thread.
  /// Both must outlive this object.
  Watchdog(ProgressBoard& board, Rank rank, Outstanding outstanding, WatchdogOptions options);
  ~Watchdog();

  void step_begin(std::int64_t step);
  void step_end();
  /// Says that the rank makes progress: it computes or writes. Callable from any thread.
  void moved() { ++moves_; }
  /// Says whether the rank is inside a call that writes. The call may last as long as an operation.
  void writes(bool on) { writes_ = on; }
  /// Ends this process as a signal asked, after all has been saved. Never returns.
  [[noreturn]] void end_now();

 private:
  using Duration = std::chrono::steady_clock::duration;
  void run(const std::stop_token& stop);
  void look();
  [[nodiscard]] std::optional<OutstandingOp> overdue_operation();
  void note_transfers(const std::vector<OutstandingOp>& outstanding);
  [[nodiscard]] bool step_stands_still(std::chrono::milliseconds limit);
  void look_at_others();
  void on_terminate(int signal);
  [[nodiscard]] bool leaves_it_to_the_run(int signal);
  void expire(const std::string& message);

  ProgressBoard& board_;
  const Rank rank_;
  const Outstanding outstanding_;
  WatchdogOptions options_;
  Duration interval_;
  std::atomic<bool> in_step_ = false;
  std::atomic<std::int64_t> moves_ = 0;
  std::atomic<bool> end_now_ = false, writes_ = false;

  // Only the watchdog's thread uses the members below.
  Duration clock_{0};                            // time that this process has been running
  std::map<std::int64_t, Duration> first_seen_;  // of outstanding operations
  std::set<std::int64_t> transfers_;             // outstanding transfers of the disk
  Duration disk_moved_at_{0};                    // when a transfer ended last
  std::pair<std::int64_t, std::int64_t> last_moves_{-1, -1};
  Duration moved_at_{0};
  std::optional<Duration> gone_since_;
  std::vector<std::int64_t> moves_of_others_;
  Duration other_moved_at_{0};
  bool somebody_is_gone_ = false;  // a process of this host ended without leaving the board
  bool asked_ = false;             // the run was asked to end by itself
  bool expired_ = false;

  std::jthread thread_;
};

/// The message about a hang, from `rank`'s view of the board: which ranks are missing, what they did last,
/// and what `rank` waits for (empty: nothing, its own step stands still). If it waits for its own disk, only
/// ranks without a process are missing. Otherwise the missing ranks are the first non-empty set of: ranks
/// whose process is gone, that stopped (no heartbeat for `stale`), that left early, that do not wait. If all
/// ranks wait: for collectives of the world, the ranks with the fewest operations, then those of other hosts;
/// for messages or in smaller groups, the rank at the end of the chain of waits, or the ring that the chain
/// runs into.
std::string describe_hang(const ProgressBoard& board, Rank rank,
                          const std::optional<OutstandingOp>& waits_for, std::chrono::milliseconds limit,
                          std::chrono::milliseconds stale);

}  // namespace sc
