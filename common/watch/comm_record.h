// What a rank has communicated: the source of the checks, the trace, the waiting time and the watchdog. No
// torch.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <vector>

#include "common/watch/comm_op.h"
#include "common/watch/gpu_moment.h"
#include "common/watch/progress_board.h"

namespace sc {

/// One operation, for the Chrome trace.
struct OpSpan {
  using Clock = std::chrono::steady_clock;
  std::int64_t number = 0;  // 1, 2, ... on this rank
  Phase phase{};
  std::int64_t step = 0;
  CommOp op;
  Bytes sent;  // by formula (wire_bytes)
  Clock::time_point issued;
  std::optional<Clock::time_point> began, ended;  // where the transport knows them
  std::optional<Clock::time_point> wait_began, wait_ended;
};

/// An operation that has not ended as far as this rank knows.
struct OutstandingOp {
  std::int64_t number = 0;
  CommOp op;
  std::optional<Rank> peer;  // of a send or receive, in its group
  bool waiting = false;      // somebody is inside its wait or is issuing it, or a GPU waits for it
  Phase phase{};
  std::int64_t step = 0;
};

struct RecordOptions {
  std::int64_t keep_steps = 64;    // recorded() knows at least that many of the last steps of each phase
  std::int64_t trace_steps = 0;    // spans are kept of steps below this, of every phase
  ProgressBoard* board = nullptr;  // told of every operation; outlives the record
};

/// One record a rank, shared by its world communicator and all splits. Thread-safe.
class CommRecord {
 public:
  using Clock = OpSpan::Clock;
  static constexpr std::size_t kMostUnread = 1 << 14;
  CommRecord(Rank world_rank, const RecordOptions& options);

  void set_phase(Phase phase);
  void set_step(std::int64_t step);

  /// Operations issued in `step` of `phase`; empty if there were none.  Errors: std::out_of_range for a step
  /// that is not kept any more.
  [[nodiscard]] CommPlan recorded(Phase phase, std::int64_t step) const;
  /// Bytes this rank sent in it, by formula.
  [[nodiscard]] Bytes sent(Phase phase, std::int64_t step) const;
  /// Time inside waits, barriers and splits since the last reset; of several threads: the sum. Of waits that
  /// a GPU measures: what read_gpu_times() has found.
  [[nodiscard]] std::chrono::nanoseconds waited() const;
  void reset_waited();
  /// To be called where the host has waited for the GPU: takes over what the GPU has measured since, in waits
  /// and in spans. What it has not come past yet is left for the next call, but at most kMostUnread waits,
  /// and of a graph only those of its last launch. Never blocks.
  void read_gpu_times();
  /// Spans that a GPU measures are laid on the host's clock by this; until then they hold the host's times.
  void set_gpu_origin(GpuOrigin origin);
  [[nodiscard]] std::vector<OpSpan> spans() const;
  /// Oldest first. Never blocks on a transport.
  [[nodiscard]] std::vector<OutstandingOp> outstanding();
  [[nodiscard]] std::int64_t operations() const;

  // For the communicator.
  /// An operation is being issued: until issued() or withdrawn() the rank counts as waiting, since a backend
  /// may have to meet the others first. Returns the operation's number.
  std::int64_t issuing(const CommOp& op, Bytes sent, std::optional<Rank> peer, Clock::time_point at);
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

 private:
  struct Pending {
    OutstandingOp op;
    Bytes sent;
    std::function<bool()> ended;
    Clock::time_point wait_began;
    std::optional<std::size_t> span;
  };
  /// A wait that a GPU measures.
  struct Timed {
    GpuTimes times;
    std::optional<std::size_t> span;
  };
  struct Captured {
    GpuTimes times;
    OpSpan span;
  };
  struct StepCount {
    CommPlan plan;
    Bytes sent;
  };
  void prune(Phase phase);
  void set_waiting(Pending& pending, bool waiting);
  void run_on(std::int64_t number, Pending& pending, std::function<bool()> ended);
  /// Forgets operations that a GPU has ended since; stops at the first that it has not, or looks at all.
  void sweep(bool all);
  std::optional<std::size_t> open_span(const OpSpan& span);
  void take_times(const Pending& pending, const GpuTimes& times);
  [[nodiscard]] bool read(const Timed& timed);

  const Rank rank_;
  const RecordOptions options_;
  mutable std::mutex mutex_;
  Phase phase_ = Phase::setup;
  std::int64_t step_ = 0;
  std::int64_t operations_ = 0;
  std::chrono::nanoseconds waited_{0};
  std::array<std::map<std::int64_t, StepCount>, 4> steps_;  // by phase
  std::array<std::int64_t, 4> forgotten_before_{};          // steps below are not kept any more
  std::map<std::int64_t, Pending> pending_;                 // by number
  std::deque<std::int64_t> running_;                        // of them, those that were waited for
  std::optional<OutstandingOp> last_;                       // the last one issued
  std::vector<OpSpan> spans_;
  std::set<std::size_t> unreal_;    // of them, those of operations that were captured, not run
  std::deque<Timed> timed_;         // not read yet
  std::vector<Captured> captured_;  // in the order of their waits
  std::optional<GpuOrigin> origin_;
};

}  // namespace sc
