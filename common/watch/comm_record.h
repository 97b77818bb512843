// What a rank has communicated: how often (CommCounts), when (CommTimes), and what has not ended yet, which a
// watchdog asks for. No torch.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

#include "common/watch/comm_counts.h"
#include "common/watch/comm_op.h"
#include "common/watch/comm_times.h"
#include "common/watch/progress_board.h"

namespace sc {

/// An operation that has not ended as far as this rank knows.
struct OutstandingOp {
  std::int64_t number = 0;
  Operation op;
  Meeting with;
  bool waiting = false;  // somebody is inside its wait or is issuing it, or a GPU waits for it
  Phase phase{};
  std::int64_t step = 0;
  bool replayed = false;  // a graph was launched, and this is the last operation of those that it holds
};

struct RecordOptions {
  std::int64_t keep_steps = 64;    // recorded() knows at least that many of the last steps of each phase
  std::int64_t trace_steps = 0;    // spans are kept of steps below this, of every phase
  ProgressBoard* board = nullptr;  // told of every operation; outlives the record
  int last_unit = kNoUnit;         // of the model, for the board's words
};

/// One record a rank, shared by its world communicator and all splits. Thread-safe.
class CommRecord {
 public:
  using Clock = OpSpan::Clock;
  CommRecord(Rank world_rank, const RecordOptions& options);

  void set_phase(Phase phase);
  void set_step(std::int64_t step);
  /// What the strategy has come to, for the board.
  void set_doing(std::string_view doing);

  /// CommCounts::of
  [[nodiscard]] CommPlan recorded(Phase phase, std::int64_t step) const;
  /// Of CommTimes. read_gpu_times is to be called where the host has waited for the GPU; it never blocks.
  [[nodiscard]] std::chrono::nanoseconds waited() const;
  void reset_waited();
  void read_gpu_times();
  void set_gpu_origin(GpuOrigin origin);
  [[nodiscard]] std::vector<OpSpan> spans() const;
  /// Oldest first. Never blocks on a transport.
  [[nodiscard]] std::vector<OutstandingOp> outstanding();
  [[nodiscard]] std::int64_t operations() const;

  // For the communicator.
  /// An operation is being issued: until issued() or withdrawn() the rank counts as waiting, since a backend
  /// may have to meet the others first. Returns the operation's number.
  ///   of_step  the training step it counts for, where a thread beside the steps issues it; empty: the
  ///            present one.
  std::int64_t issuing(const Operation& op, Bytes sent, const Meeting& with, Clock::time_point at,
                       std::optional<std::int64_t> of_step = {});
  /// `ended` is asked by outstanding() under the record's lock until wait_ended() or forget().
  void issued(std::int64_t number, std::function<bool()> ended);
  /// It was refused, and counts nowhere.
  void withdrawn(std::int64_t number);
  void wait_began(std::int64_t number);
  /// `ended`: TicketState::ended_later(). Until it is true the operation is outstanding and the rank waits,
  /// although its host has gone on: nobody notices otherwise that a GPU hangs. `times`:
  /// TicketState::gpu_times().
  void wait_ended(std::int64_t number, std::optional<Clock::time_point> op_ended,
                  std::function<bool()> ended = nullptr, const GpuTimes& times = {});
  void forget(std::int64_t number);
  /// A captured graph that holds operations was launched: counts as the last operation again, outstanding
  /// until `ended`; the waits of all captured operations are read again. Does nothing before the first
  /// operation, and adds nothing to recorded().
  void replayed(std::function<bool()> ended);
  /// That graph is gone.
  void forget_captured();

 private:
  struct Pending {
    OutstandingOp op;
    CommTimes::Op times;
    std::function<bool()> ended;
  };
  void set_waiting(Pending& pending, bool waiting);
  void publish_waits();
  void run_on(std::int64_t number, Pending& pending, std::function<bool()> ended);
  /// Forgets operations that a GPU has ended since; stops at the first that it has not, or looks at all.
  void sweep(bool all);

  const Rank rank_;
  ProgressBoard* const board_;
  mutable std::mutex mutex_;
  Phase phase_ = Phase::setup;
  std::int64_t step_ = 0;
  std::int64_t operations_ = 0;
  CommCounts counts_;
  CommTimes times_;
  std::map<std::int64_t, Pending> pending_;  // by number
  std::deque<std::int64_t> running_;         // of them, those that were waited for
  std::optional<OutstandingOp> last_;        // the last one issued
};

}  // namespace sc
