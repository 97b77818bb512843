// A rank's communication: how often, when, and which operations have not ended yet; the watchdog asks for
// those. No torch.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

#include "common/watch/comm_op.h"
#include "common/watch/gpu_moment.h"
#include "common/watch/op_span.h"
#include "common/watch/progress_board.h"

namespace sc {

/// An operation that has not ended as far as this rank knows.
struct OutstandingOp {
  std::int64_t number = 0;
  Operation op;
  Meeting with;
  bool waiting = false;  // somebody waits for it or is issuing it, or a GPU waits for it
  Phase phase{};
  std::int64_t step = 0;
  bool replayed = false;  // stands for a launched graph: the last operation captured in it
  bool operator==(const OutstandingOp&) const = default;
};

struct RecordOptions {
  std::int64_t keep_steps = 64;    // recorded() covers at least this many of the last steps of each phase
  std::int64_t trace_steps = 0;    // spans are kept for steps below this, in every phase
  ProgressBoard* board = nullptr;  // receives every operation; must outlive the record
  int last_unit = kNoUnit;         // of the model, for messages
};

/// The record of one rank, shared by its world communicator and all splits. Thread-safe.
class CommRecord {
 public:
  using Clock = OpSpan::Clock;
  static constexpr std::size_t kMostUnread = 1 << 14;
  CommRecord(Rank world_rank, const RecordOptions& options);

  void set_phase(Phase phase);
  void set_step(std::int64_t step);
  /// Shows on the board what the strategy is doing now.
  void set_doing(std::string_view doing);

  /// The operations issued in a step, which are compared with the plan. Empty if there were none.
  ///   Errors  std::out_of_range for a step that is no longer kept.
  [[nodiscard]] CommPlan recorded(Phase phase, std::int64_t step) const;
  /// Time spent inside waits since the last reset, summed over threads. Waits that a GPU measures are
  /// included after read_gpu_times() has read them.
  [[nodiscard]] std::chrono::nanoseconds waited() const;
  void reset_waited();
  /// Reads what the GPU has measured since the last call, for waits and spans; must follow the host's wait
  /// for the GPU. Never blocks. Waits that the GPU has not passed yet are left for the next call, but at most
  /// kMostUnread of them, and for a graph only those of its last launch.
  void read_gpu_times();
  /// Sets the origin of GPU times on the host's clock. Until then spans hold the host's times.
  void set_gpu_origin(GpuOrigin origin);
  [[nodiscard]] std::vector<OpSpan> spans() const;
  /// The operations that have not ended, oldest first. Never blocks on a transport.
  [[nodiscard]] std::vector<OutstandingOp> outstanding();
  [[nodiscard]] std::int64_t operations() const;

  // Communicators call the functions below.

  /// Announces that an operation is being issued; returns its number. Until issued() or withdrawn() the rank
  /// counts as waiting, since a backend may have to wait for other ranks.
  ///   of_step  the training step that it counts for, if another thread than that of the steps issues it;
  ///            empty: the current step.
  std::int64_t issuing(const Operation& op, Bytes sent, const Meeting& with, Clock::time_point at,
                       std::optional<std::int64_t> of_step = {});
  /// Says that the operation was issued. outstanding() calls `ended` under the record's lock until
  /// wait_ended() or forget().
  void issued(std::int64_t number, std::function<bool()> ended);
  /// Says that the operation was refused, so that it is not counted.
  void withdrawn(std::int64_t number);
  void wait_began(std::int64_t number);
  /// Says that the host's wait has ended. Until `ended` (TicketState::ended_later()) returns true, the
  /// operation is outstanding and the rank waits although its host goes on; otherwise nobody would notice
  /// that a GPU hangs. `times` is TicketState::gpu_times().
  void wait_ended(std::int64_t number, std::optional<Clock::time_point> op_ended,
                  std::function<bool()> ended = nullptr, const GpuTimes& times = {});
  void forget(std::int64_t number);
  /// Says that a captured graph that holds operations was launched. Its last operation is outstanding again
  /// until `ended`, and the waits of all captured operations are read again. Does nothing before the first
  /// operation; adds nothing to recorded().
  void replayed(std::function<bool()> ended);
  /// Says that the captured graph was destroyed.
  void forget_captured();

 private:
  struct Steps {
    std::map<std::int64_t, CommPlan> plans;
    // Steps before this one are not kept.
    std::int64_t forgotten_before = std::numeric_limits<std::int64_t>::min();
  };
  using Place = std::optional<std::size_t>;  // index into the kept spans
  struct Pending {
    OutstandingOp op;
    OpSpan span = {};  // as issued
    Place place = {};
    std::function<bool()> ended = [] { return false; };
    Clock::time_point wait_began = {};
  };
  struct Timed {
    GpuTimes times;
    Place place;
  };
  struct Captured {
    GpuTimes times;
    OpSpan span;
  };
  [[nodiscard]] Steps& steps(Phase phase) { return phases_[static_cast<std::size_t>(phase)]; }
  Place keep(const OpSpan& span);
  void measure(const Pending& pending, const GpuTimes& times);
  [[nodiscard]] bool read(const Timed& timed);
  void read_all();
  void forget_launches();
  void set_waiting(Pending& pending, bool waiting);
  void run_on(std::int64_t number, Pending& pending, std::function<bool()> ended);
  /// Forgets operations that a GPU has ended; stops at the first one that has not ended, unless `all`.
  void sweep(bool all);

  const Rank rank_;
  ProgressBoard* const board_;
  mutable std::mutex mutex_;
  Phase phase_ = Phase::setup;
  std::int64_t step_ = 0;
  std::int64_t operations_ = 0;
  const std::int64_t keep_steps_, trace_steps_;
  std::array<Steps, 4> phases_;
  std::chrono::nanoseconds waited_{0};
  std::vector<OpSpan> spans_;
  std::set<std::size_t> unreal_;    // spans of operations that were captured, not run
  std::deque<Timed> timed_;         // not read yet
  std::vector<Captured> captured_;  // in the order of their waits
  std::optional<GpuOrigin> origin_;
  std::map<std::int64_t, Pending> pending_;  // by number
  std::deque<std::int64_t> running_;         // those of pending_ that were waited for
  std::optional<OutstandingOp> last_;        // the one issued last
};

}  // namespace sc
