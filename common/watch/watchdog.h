// No run hangs: a thread that notices when this rank waits too long, says for whom, and ends the job. No
// torch, no MPI.
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
  /// How long an operation may be outstanding while no other rank of this host moves; a transfer from or to
  /// the disk:
  /// since the last one ended.
  std::chrono::milliseconds limit{30'000};
  /// How long a step may pass without an operation, moved() or step_begin(). Not set: `limit` in a world
  /// of one, where nobody else would notice; ten times that otherwise. 0: never.
  std::optional<std::chrono::milliseconds> step_limit;
  /// On SIGTERM: if a rank of this host died, say so and exit 75; otherwise exit 143. (mpirun sends it to the
  /// ranks that are left.) SIGUSR1, which mpirun passes on and does nothing about itself, means the same.
  bool on_sigterm = false;
  /// The same on SIGINT and SIGHUP: exit 130 and 129. Where a launcher stands between, it sends SIGTERM
  /// instead.
  bool on_sigint = false;
  /// Asked once, at SIGTERM: does the run end by itself, with Watchdog::end_now()? It may then take its time,
  /// as long as it is no hang. Default: no.
  std::function<bool()> ends_by_itself = [] { return false; };
  /// Before such an end, unless a rank died: the signal. For the last words of this rank.
  std::function<void(int signal)> interrupted = [](int) {};
  /// The message, once a job. Default: to stderr, with "error: " before it.
  std::function<void(const std::string&)> print = say_error;
  /// Asks for the end of all ranks; MpiWorld::abort_job(75), say. May block, may not return.
  std::function<void()> abort = [] {};
  /// Ends this process, `last_words` after `abort` was called.
  std::function<void(int)> exit = ::_exit;
  std::chrono::milliseconds last_words{1000};
};

/// One a rank. Its thread also beats the rank's heart on the board.
///   Expiry   an operation of this rank outlives the limit, a step stands still (step_limit), or the process
///            of a rank on this host has been gone for 2 s. Then the first watchdog of the job to notice
///            prints one message that names the missing ranks with their last operation and step; all of them
///            call `abort`, and 1 s later `exit(75)`.
///   Time     only while this process runs: to stop and continue a whole job (^Z) does no harm.
///   Silence  whoever has claimed the board speaks for the job: a rank that ends with an error of its own
///            calls board.claim() before it prints, and no watchdog adds a second message.
class Watchdog {
 public:
  using Outstanding = std::function<std::vector<OutstandingOp>()>;

  /// Joins `rank` to the board. `outstanding`: CommRecord::outstanding; asked from the watchdog's thread.
  /// Both outlive this.
  Watchdog(ProgressBoard& board, Rank rank, Outstanding outstanding, WatchdogOptions options);
  /// The rank leaves the board.
  ~Watchdog();

  void step_begin(std::int64_t step);
  void step_end();
  /// The rank goes on: it computes, or writes. From any thread.
  void moved() { ++moves_; }
  /// From here on the rank is in a call that writes (or not any more), which may last as long as an
  /// operation.
  void writes(bool on) { writes_ = on; }
  /// What a signal asks for, now that all is saved: ends this process. Never returns.
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

  // The thread's own:
  Duration clock_{0};                            // time this process has run
  std::map<std::int64_t, Duration> first_seen_;  // outstanding operations
  std::set<std::int64_t> transfers_;             // of them, those of the disk
  Duration disk_moved_at_{0};                    // one of those ended
  std::pair<std::int64_t, std::int64_t> last_moves_{-1, -1};
  Duration moved_at_{0};
  std::optional<Duration> gone_since_;
  std::vector<std::int64_t> moves_of_others_;
  Duration other_moved_at_{0};
  bool somebody_is_gone_ = false;  // a process of this host that has not left
  bool asked_ = false;             // the run was asked to end by itself
  bool expired_ = false;

  std::jthread thread_;
};

/// The message about a hang, as `rank` sees it on the board: who is missing, what he did last, and what
/// `rank` waits for (nothing: its own step stands still). For its own disk only a rank whose process is gone
/// is missing. Missing are, the first kind that has any: ranks whose process is gone, who stopped (no
/// heartbeat for `stale`), who left early, who are not waiting for anything. Where all wait: for collectives
/// of the world, the ranks with the fewest operations, then those of other hosts; for messages or in smaller
/// groups, who is at the end of the chain of waits, or the ring that it runs into.
std::string describe_hang(const ProgressBoard& board, Rank rank,
                          const std::optional<OutstandingOp>& waits_for, std::chrono::milliseconds limit,
                          std::chrono::milliseconds stale);

}  // namespace sc
